"""`curve:` in a plan: the break-even accept length over batches and numbers of drafts, measured by forced acceptance.

It stands for arms that nobody should have to write out: for every number of drafts one that is forced to accept half of them, and
one that accepts a fifth, which shows whether the price of a round depends on what is accepted. Which of them are really measured is
decided while the run goes on (`curving.py`). With `idle` one more arm has speculation loaded and never drafts: what a schedule
costs where it rests.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, field_validator, model_validator

from breakeven.experiment.plan_sections import Section

__all__ = ["IDLE_ARM", "CurvePlan", "curve_arm", "curve_arms", "is_curve_arm"]

IDLE_ARM = "curve-idle"
_PREFIX = "curve-k"
_LOW = "-low"
# shares of the drafts that are accepted: half is near what good heads reach, a fifth near what weak ones do
_SHARE = 0.5
_LOW_SHARE = 0.2
# beyond every load that a plan may have
_ANY_BATCH = 100_000

Whole = Annotated[int, Field(ge=1, le=64)]


class CurvePlan(Section):
    method: Literal["ngram", "eagle3"] = Field(default="eagle3", description="How to draft")
    drafter: str | None = Field(default=None, description="EAGLE-3 head: a folder, a hub id, or random (default)")
    num_draft_tokens: Annotated[tuple[Whole, ...], Strict(False)] = Field(
        default=(1, 2, 3, 4, 5), min_length=1, max_length=64, description="Numbers of drafts that the curve is wanted for"
    )
    precision: float = Field(
        default=0.05, gt=0.0, lt=1.0, description="Half width of an interval of c, relative to c, that will do"
    )
    idle: bool = Field(
        default=False, description="Also measure speculation loaded with no drafts, where the engine can change their number"
    )
    simulation: dict[Annotated[int, Strict(False)], dict[str, Any]] = Field(
        default_factory=dict, description="Engine fake: declared truth of the arms with so many drafts (0: idle)"
    )

    @field_validator("num_draft_tokens")
    @classmethod
    def _ascending(cls, drafts: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(drafts)) != len(drafts):
            raise ValueError(f"num_draft_tokens lists a number twice: {list(drafts)}")
        return tuple(sorted(drafts))

    @model_validator(mode="after")
    def _possible(self) -> CurvePlan:
        if self.method != "eagle3" and self.drafter is not None:
            raise ValueError(f"method {self.method} takes no drafter; remove the key or choose method eagle3")
        return self


def curve_arm(num_draft_tokens: int, *, low: bool = False) -> str:
    """The name of the arm that measures c with so many drafts."""
    return f"{_PREFIX}{num_draft_tokens}{_LOW if low else ''}"


def is_curve_arm(name: str) -> bool:
    """Whether `curve` stands for the arm of this name."""
    return name.startswith(_PREFIX) or name == IDLE_ARM


def curve_arms(curve: CurvePlan) -> dict[str, dict[str, Any]]:
    """Every arm that `curve` stands for, as a plan would spell it."""
    arms = {}
    for k in curve.num_draft_tokens:
        for low in (False, True):
            speculation: dict[str, Any] = {"method": curve.method, "num_draft_tokens": k}
            if curve.method == "eagle3":
                speculation["drafter"] = curve.drafter or "random"
            speculation["forced_accept_length"] = 1.0 + round((_LOW_SHARE if low else _SHARE) * k, 2)
            arm: dict[str, Any] = {"speculation": speculation}
            if k in curve.simulation:
                arm["simulation"] = curve.simulation[k]
            arms[curve_arm(k, low=low)] = arm
    if curve.idle:
        speculation = {"method": curve.method, "num_draft_tokens": max(curve.num_draft_tokens), "schedule": [[1, _ANY_BATCH, 0]]}
        if curve.method == "eagle3":
            speculation["drafter"] = curve.drafter or "random"
        arms[IDLE_ARM] = {"speculation": speculation}
        if 0 in curve.simulation:
            arms[IDLE_ARM]["simulation"] = curve.simulation[0]
    return arms
