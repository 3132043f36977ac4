"""What a check of equal output says: the one type that is stored, printed and joined to a run's verdict."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SCHEMA_VERSION", "ArmEquality", "Equality", "EqualityOutcome", "Example", "Parting"]

SCHEMA_VERSION = 1

EqualityOutcome = Literal["equal", "numerics", "fault", "undecided"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Parting(_Frozen):
    """How a set of answers parts from the first plain ones."""

    num_parted: int = Field(description="Prompts whose answers differ")
    num_near: int = Field(description="Of these, differences at a near tie of the plain answer's own probabilities")
    num_far: int = Field(description="Of these, differences where plain clearly preferred its own token")
    num_unknown: int = Field(description="Of these, differences whose margin the server does not tell")
    median_position: float | None = Field(default=None, description="Median position of the first difference, of those that differ")
    agreeing: tuple[tuple[int, float], ...] = Field(
        default=(), description="(positions, share of prompts that still agree after so many)"
    )
    largest_margin: float | None = Field(default=None, description="Nats")
    num_degenerate: int = Field(default=0, description="Answers that loop or say nothing")
    degenerate: str | None = Field(default=None, description="What is wrong with the first of these")


class Example(_Frozen):
    """One difference, to be looked at. Texts are excerpts of what models wrote: untrusted."""

    prompt_id: str
    position: int
    unit: Literal["tokens", "characters"]
    margin: float | None = None
    at_least: bool = False
    plain: str
    speculative: str


class ArmEquality(_Frozen):
    arm: str
    reference: str = Field(description="The plain arm of the same engine")
    outcome: EqualityOutcome
    sentence: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    num_prompts: int = Field(description="Prompts with all three answers")
    num_failed: int = Field(default=0, description="Prompts left out because a request failed")
    num_left_first: int = Field(description="Prompts in which it left plain's text before plain itself did")
    num_plain_left_first: int = Field(description="Prompts in which plain left its own text first")
    p_value: float = Field(description="One-sided sign test of the two counts before")
    p_value_far: float | None = Field(default=None, description="The same over differences that are no near ties; None: no margins")
    speculative: Parting
    plain: Parting
    examples: tuple[Example, ...] = ()


class Equality(_Frozen):
    schema_version: int = SCHEMA_VERSION
    name: str
    num_prompts: int
    max_tokens: int
    concurrency: int
    alpha: float
    arms: tuple[ArmEquality, ...]
    left_out: dict[str, str] = Field(default_factory=dict, description="Arms that were not compared, with the reason")
    fingerprints: dict[str, str] = Field(default_factory=dict, description="Of the models, as in a run's provenance")
