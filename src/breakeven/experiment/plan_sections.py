"""The plain sections of plan.yaml: launches, workload, load, limits and trial, and what every section has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

__all__ = ["LaunchesPlan", "LimitsPlan", "LoadPlan", "Section", "Texts", "TrialPlan", "WorkloadPlan"]

Texts = Annotated[tuple[str, ...], Strict(False)]


class Section(BaseModel):
    """Strict about types ("8" is not a number) and about names: a key that is not listed is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LaunchesPlan(Section):
    min: int = Field(default=3, ge=1, le=100, description="Launches of every arm before the first look at the intervals")
    max: int = Field(default=3, ge=1, le=100, description="Launches of an arm at most, where the interval stays open")

    @model_validator(mode="after")
    def _ordered(self) -> LaunchesPlan:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; expected min <= max")
        return self


class WorkloadPlan(Section):
    prompts: str = Field(default="builtin", description="builtin, or a .jsonl file of your own prompts")
    kinds: Texts = Field(default=(), description="Kinds of prompts to keep; empty keeps all")
    max_tokens: int = Field(default=128, ge=1, le=1_000_000, description="Longest answer asked for, in tokens")
    fixed_length: bool = Field(default=False, description="Every answer has exactly max_tokens (ignore_eos)")
    temperature: float = Field(default=0.0, ge=0.0, le=10.0, description="0 is greedy")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, description="Nucleus sampling")


class LoadPlan(Section):
    concurrency: int | None = Field(default=None, ge=1, le=100_000, description="Closed loop: requests always under way")
    rate_per_s: float | None = Field(default=None, gt=0.0, le=1e6, description="Open loop: Poisson arrivals, requests per second")
    window_s: float | None = Field(default=None, gt=0.0, le=86400.0, description="Length of its window (default: trial.window_s)")

    @model_validator(mode="after")
    def _one_kind(self) -> LoadPlan:
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("expected either concurrency or rate_per_s in each load point")
        return self


class LimitsPlan(Section):
    ttft_s: float | None = Field(default=None, gt=0.0, description="Longest wait for the first token, from when it was due")
    tpot_s: float | None = Field(default=None, gt=0.0, description="Longest mean time of each further token of an answer")


class TrialPlan(Section):
    warmup_s: float = Field(default=5.0, ge=0.0, le=3600.0, description="Load before the window opens, not measured")
    window_s: float = Field(default=30.0, gt=0.0, le=86400.0, description="Length of the measured window")
    repeats: int = Field(default=1, ge=1, le=100, description="Windows of each arm at each load point within one launch")
    reset_cache: bool = Field(default=False, description="Empty the server's prefix cache before each window's load begins")
