"""What `breakeven predict` found: one type for all its ways, documented by its fields (docs/predict.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from breakeven.costs.payoff import Outcome

__all__ = [
    "AcceptanceNeeded",
    "BatchPrediction",
    "DraftsByBatch",
    "ErrorBar",
    "FixedDrafts",
    "PartTime",
    "Position",
    "PredictedPoint",
    "PredictedSchedule",
    "Prediction",
    "Range",
    "Row",
    "SpelledSchedule",
    "Unpredicted",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Range(_Frozen):
    """A value with its interval."""

    value: float
    low: float
    high: float


class ErrorBar(_Frozen):
    """How predictions of this kind were off where the answer was known."""

    what: str
    half: float = Field(description="Half of the predictions were off by less, relative")
    tenth: float = Field(description="One in ten was off by more")
    num: int
    num_targets: int


class PartTime(_Frozen):
    """One part of a step, in seconds."""

    phase: Literal["plain", "verify", "draft"]
    group: str
    name: str
    seconds: float
    source: str


class Position(_Frozen):
    """What one draft position's conditional acceptance must become for the accept length to pay, the others as they are."""

    position: int
    now: float
    needed: float | None = Field(description="None: not even 0.95 there is enough")
    gain_per_point: float = Field(description="Accept length gained for each 0.01")


class AcceptanceNeeded(_Frozen):
    """Where no number of drafts surely pays: what a better drafter must reach."""

    num_draft_tokens: int
    accept_length: float = Field(description="Now")
    break_even: float
    needed: float = Field(description="Accept length at which the whole interval pays by more than the threshold")
    positions: tuple[Position, ...] = Field(description="Best lever first")
    everywhere: float | None = Field(description="To add to every position's conditional acceptance; None: not enough up to 0.95")


class PredictedPoint(_Frozen):
    """c and, with a drafter's acceptance, the speedup at one batch and number of drafts."""

    num_draft_tokens: int
    cost: Range = Field(description="c, the break-even accept length")
    round_s: float | None = None
    accept_length: Range | None = None
    speedup: Range | None = None
    outcome: Outcome | None = None
    doubts: tuple[str, ...] = ()


class BatchPrediction(_Frozen):
    batch: int
    plain_s: float | None = None
    points: tuple[PredictedPoint, ...]
    best: int | None = Field(default=None, description="Number of drafts with the highest speedup above 1")
    level: tuple[int, ...] = Field(default=(), description="Others within the threshold of the best")
    needed: AcceptanceNeeded | None = None
    parts: tuple[PartTime, ...] = Field(default=(), description="Where the time goes, at `parts_for` drafts")
    parts_for: int | None = None


class Row(_Frozen):
    """A speedup predicted from measured rows of a table."""

    label: str
    accept_length: Range
    cost: Range = Field(description="c, the break-even accept length")
    speedup: Range
    speed: Range | None = Field(default=None, description="Tokens/s as the table gives the plain speed; none where it does not")
    outcome: Outcome
    error: ErrorBar
    evidence: tuple[str, ...]
    doubts: tuple[str, ...] = ()


class Unpredicted(_Frozen):
    """Something asked for that cannot be said, or a row left out, with the reason."""

    label: str
    reason: str


class DraftsByBatch(_Frozen):
    """How many drafts to run at batches `first` to `last`."""

    first: int
    last: int | None = Field(description="None: and beyond")
    num_draft_tokens: int = Field(description="0: plain decoding")
    speedup: Range | None = Field(default=None, description="Predicted at the largest measured batch of the stretch")
    idle: Range | None = Field(
        default=None, description="Where nothing is drafted: a step with the drafter loaded, in plain steps; null: not measured"
    )
    why: str


class FixedDrafts(_Frozen):
    """One number of drafts at every batch, the one that loses least against the schedule."""

    num_draft_tokens: int
    worst_loss: float = Field(description="0.1: 10 % slower than the schedule where it loses most, by value")
    worst_batch: int
    undecided: tuple[int, ...] = Field(default=(), description="Batches where the schedule rests and this may pay or not")


class SpelledSchedule(_Frozen):
    """The schedule as an engine takes it: flags, and the file they name where they name one."""

    engine: str
    version: str | None
    flags: tuple[str, ...]
    file_name: str | None = None
    file_content: str | None = None
    remarks: tuple[str, ...] = ()


class PredictedSchedule(_Frozen):
    by_batch: tuple[DraftsByBatch, ...]
    fixed: FixedDrafts
    spelled: SpelledSchedule | None = None


class Prediction(_Frozen):
    schema_version: Literal[1] = 1
    kind: Literal["kernel tables", "step times", "measured rows", "measured run", "c as given"]
    title: str
    headline: str
    threshold: float
    error: ErrorBar | None = Field(default=None, description="Of all batches; rows carry their own")
    batches: tuple[BatchPrediction, ...] = ()
    schedule: PredictedSchedule | None = Field(default=None, description="With a drafter's acceptance on a measured run")
    rows: tuple[Row, ...] = ()
    left_out: tuple[Unpredicted, ...] = ()
    unpredicted: tuple[Unpredicted, ...] = ()
    notes: tuple[str, ...] = ()
    next_measurements: tuple[str, ...] = ()
