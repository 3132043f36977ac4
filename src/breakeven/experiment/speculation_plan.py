"""How an arm drafts, as plan.yaml says it, and which ways of drafting go together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator, model_validator

from breakeven.experiment.plan_sections import Section

__all__ = ["SpeculationPlan"]

Stretch = Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0)]], Strict(False)]


class SpeculationPlan(Section):
    method: Literal["ngram", "eagle3"] = Field(description="How to draft")
    num_draft_tokens: int = Field(default=3, ge=1, le=64, description="Tokens drafted a round")
    drafter: str | None = Field(default=None, description="EAGLE-3 head: a folder, a hub id, or random (right shape, no training)")
    forced_accept_length: float | None = Field(
        default=None, ge=1.0, description="Accept to order: mean tokens a round, bonus included"
    )
    ngram_max: int = Field(default=3, ge=1, le=64, description="Longest n-gram looked up")
    ngram_min: int = Field(default=1, ge=1, le=64, description="Shortest n-gram looked up")
    topk: int = Field(default=1, ge=1, le=64, description="Branches a step of a drafted tree (sglang); 1 drafts a chain")
    num_steps: int | None = Field(
        default=None, ge=1, le=64, description="Drafting steps of a tree; a chain has one a drafted token"
    )

    schedule: Annotated[tuple[Stretch, ...], Strict(False)] = Field(
        default=(), max_length=64, description="Drafts by running requests: [first, last, drafts] each; the last number holds on"
    )

    @field_validator("schedule", mode="before")
    @classmethod
    def _triples(cls, schedule: Any) -> Any:
        for stretch in schedule if isinstance(schedule, list) else ():
            if not isinstance(stretch, list) or len(stretch) != 3:
                raise ValueError(
                    f"found {str(stretch)[:60]!a} in it; expected [first, last, drafts] for each range of running requests"
                )
        return schedule

    @field_validator("schedule")
    @classmethod
    def _follows_on(cls, schedule: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        expected = 1
        for first, last, _ in schedule:
            if first != expected or last < first:
                raise ValueError(
                    f"found [{first}, {last}] where a range from {expected} was expected; ranges begin at 1 and follow each other, "
                    "e.g. [[1, 8, 3], [9, 64, 0]]"
                )
            expected = last + 1
        return schedule

    @model_validator(mode="after")
    def _possible(self) -> SpeculationPlan:
        most = max((drafts for _, _, drafts in self.schedule), default=0)
        if most > self.num_draft_tokens:
            raise ValueError(
                f"schedule asks for {most} drafts; num_draft_tokens, the most there can be, is {self.num_draft_tokens}"
            )
        if self.schedule and (self.forced_accept_length is not None or self.topk > 1):
            other = "forced_accept_length" if self.forced_accept_length is not None else "topk"
            raise ValueError(
                f"schedule changes the number of drafts of a chain, which {other} does not go with; remove one of them"
            )
        if self.method == "eagle3" and self.drafter is None:
            raise ValueError(
                "method eagle3 needs a drafter: a folder, a hub id, or random for one of the right shape without training"
            )
        if self.method != "eagle3" and self.drafter is not None:
            raise ValueError(f"method {self.method} takes no drafter; remove the key or choose method eagle3")
        if self.forced_accept_length is not None and self.forced_accept_length > self.num_draft_tokens + 1:
            raise ValueError(
                f"forced_accept_length {self.forced_accept_length:g} cannot be reached: {self.num_draft_tokens} draft tokens "
                f"give at most {self.num_draft_tokens + 1} tokens a round"
            )
        if self.topk > 1 and (self.method != "eagle3" or self.num_steps is None):
            raise ValueError(f"topk is {self.topk}: trees are drafted by method eagle3, and need num_steps too")
        if self.topk == 1 and self.num_steps not in (None, self.num_draft_tokens):
            raise ValueError(
                f"num_steps is {self.num_steps} and num_draft_tokens {self.num_draft_tokens}; a chain (topk 1) drafts one token a "
                "step: leave num_steps out"
            )
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"ngram_min is {self.ngram_min} and ngram_max {self.ngram_max}; expected ngram_min <= ngram_max")
        return self
