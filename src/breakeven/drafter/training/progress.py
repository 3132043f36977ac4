"""What a training tells of itself: a line as it goes, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["AcceptLength", "Progress", "Trained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLength:
    """Offline, free-running, on held-out prompts; the interval is over prompts."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of the log for people. Lists are by step of the training-time test."""

    step: int
    num_steps: int
    epoch: int
    loss: float
    accuracy: tuple[float, ...]
    tokens_per_s: float
    left_s: float
    accept_length: AcceptLength | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """`best` holds weights.safetensors, the tensors of an EAGLE-3 folder. Where nothing is evaluated they are the last ones, and
    `accept_length` is None."""

    best: Path
    best_step: int
    num_steps: int
    accept_length: AcceptLength | None
