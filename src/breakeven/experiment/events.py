"""What a run tells whoever watches it. Displays are the command line's business; nothing here prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from breakeven.experiment.schedule import Step
from breakeven.experiment.trial import Trial

__all__ = ["Answering", "ArmFailed", "Event", "Launching", "Measuring", "Note", "Ready", "Tell", "TrialEnded", "TrialStarted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """Told several times a second while a server starts; `line` is the last one it wrote."""

    arm: str
    block: int
    elapsed_s: float
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    arm: str
    block: int
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """`number` of `total` known so far (further blocks may follow); `eta_s` is for all of them."""

    step: Step
    number: int
    total: int
    eta_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Told while a trial runs: warm-up, settling or window; `remaining_s` is None where that has no end of its own."""

    arm: str
    phase: str
    remaining_s: float | None
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    trial: Trial
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFailed:
    arm: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """Told with every answer that `breakeven equal` gets: `num_done` of `total` of one pass."""

    arm: str
    num_done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str


Event = Answering | Launching | Ready | TrialStarted | Measuring | TrialEnded | ArmFailed | Note
Tell = Callable[[Event], None]
