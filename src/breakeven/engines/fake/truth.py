"""What a fake arm declares about itself: times, acceptance and noise, so that every statistic has a known right answer."""

from __future__ import annotations

import itertools
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from breakeven.engines.base import Arm
from breakeven.errors import PlanError

__all__ = ["Truth", "by_batch", "truth_of"]

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
# far beyond every server: what is drawn from these stays a number, and the tokens of a window can be counted
Deviation = Annotated[float, Field(ge=0.0, le=3.0)]
Seconds = Annotated[float, Field(ge=0.0, le=1e4)]
SMALLEST, LARGEST = 1e-6, 1e4
ByBatch = float | dict[int, float]


class Truth(BaseModel):
    """An arm's `simulation` mapping. Times in seconds; values by batch are interpolated between the batches given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_s: ByBatch = Field(default=0.02, description="One plain decode step, by running batch")
    cost_ratio: ByBatch = Field(default=1.0, description="c: a round of this arm over a plain step, by running batch")
    prefill_s: Seconds = Field(default=0.05, description="Prefill of one request")
    prompt_tokens: int = Field(default=64, ge=1, le=10_000_000)
    joint: tuple[Probability, ...] = Field(default=(), description="P(first i drafts accepted), i = 1..k; not for forced arms")
    drafted_share: Probability = Field(default=1.0, description="Share of steps that carry drafts")

    launch_sd: Deviation = Field(default=0.0, description="s.d. of the log speed of a launch")
    drift_sd: Deviation = Field(default=0.0, description="s.d. of the log speed of the trials of a launch")
    drift_correlation: float = Field(default=0.0, ge=0.0, lt=1.0, description="AR(1) correlation of neighbouring trials")
    outlier_probability: Probability = Field(default=0.0, description="Chance that a trial is slow altogether")
    outlier_slowdown: float = Field(default=1.3, ge=1.0, le=1000.0, description="How many times slower it is then")

    admits: int | None = Field(default=None, ge=1, description="Requests it really runs, where fewer than max_running_requests")
    preemptions_per_request: float = Field(default=0.0, ge=0.0, le=1000.0)
    foreign_tokens_per_s: float = Field(default=0.0, ge=0.0, le=1e9, description="Tokens that somebody else's requests get")
    degenerate_probability: Probability = Field(default=0.0, description="Chance that an answer is a loop")
    error_probability: Probability = Field(default=0.0, description="Chance that a request fails")
    client_lag_s: Seconds = Field(default=0.0005)

    rounding_flips: Probability = Field(default=0.0, description="Chance that a token falls the other way of a near tie, any pass")
    wrong_tokens: Probability = Field(default=0.0, description="Chance that a token is one that plain would not have said")
    tells_logprobs: bool = Field(default=True, description="Whether its answers come with log-probabilities")

    @model_validator(mode="after")
    def _possible(self) -> Truth:
        for name in ("step_s", "cost_ratio"):
            value = getattr(self, name)
            points = value if isinstance(value, dict) else {1: value}
            if not points or any(batch < 1 or not SMALLEST <= number <= LARGEST for batch, number in points.items()):
                expected = f"a number from {SMALLEST:g} to {LARGEST:g}, or map batches from 1 up to such numbers"
                raise ValueError(f"{name} must be {expected}; found {value}")
        if any(later > earlier for earlier, later in itertools.pairwise(self.joint)):
            raise ValueError(f"joint acceptance cannot rise with position; found {list(self.joint)}")
        return self


def truth_of(arm: Arm) -> Truth:
    """The declared truth of `arm`, checked against what the arm says it is.

    Raises:
        PlanError: unknown keys, impossible values, or acceptance that does not fit the arm's speculation.
    """
    try:
        truth = Truth.model_validate(dict(arm.simulation))
    except ValidationError as error:
        faults = "; ".join(
            ".".join(str(part) for part in fault["loc"]) + (": " if fault["loc"] else "") + fault["msg"] for fault in error.errors()
        )
        known = ", ".join(Truth.model_fields)
        raise PlanError(f"arm {arm.name!r}: its simulation cannot be read: {faults}. Known keys: {known}.") from None
    speculation = arm.speculation
    if speculation is None:
        if truth.joint:
            raise PlanError(f"arm {arm.name!r} declares joint acceptance but has no speculation; add it or drop `joint`.")
    elif speculation.forced_accept_length is not None:
        if truth.joint:
            raise PlanError(f"arm {arm.name!r} forces its accept length, so `joint` has no meaning there; drop one of the two.")
        if not 1 <= speculation.forced_accept_length <= speculation.num_draft_tokens + 1:
            raise PlanError(
                f"arm {arm.name!r} forces accept length {speculation.forced_accept_length:g} with"
                f" {speculation.num_draft_tokens} drafts; it lies between 1 and {speculation.num_draft_tokens + 1}."
            )
    elif speculation.is_idle:
        if truth.joint:
            raise PlanError(f"arm {arm.name!r} never drafts, so `joint` has no meaning there; drop it.")
    elif len(truth.joint) != speculation.num_draft_tokens:
        raise PlanError(
            f"arm {arm.name!r} drafts {speculation.num_draft_tokens} tokens but declares joint acceptance at"
            f" {len(truth.joint)} positions; declare one for each under simulation.joint (docs/fake-engine.md)."
        )
    return truth


def by_batch(value: ByBatch, batch: float) -> float:
    """The value at `batch`, linear between the batches given, flat beyond them."""
    if not isinstance(value, dict):
        return value
    points = sorted(value.items())
    if batch <= points[0][0]:
        return points[0][1]
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if batch <= high:
            return at_low + (at_high - at_low) * (batch - low) / (high - low)
    return points[-1][1]
