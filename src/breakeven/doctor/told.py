"""What a rule says: a fault that the evidence supports, or that it cannot decide and what would let it.

Severity. error: the drafter computes something else than it was trained for, does not load, or the comparison is void.
warning: it costs acceptance or speed under some conditions, or is a fault only if something unseen holds. info: worth knowing.
Confidence. high: the files or flags themselves contradict each other, or an engine's source says what happens. medium: one
convention has to be assumed, and the usual one is. low: a difference that is a fault only if the drafter was trained otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from breakeven.doctor.signs import NOT_KNOWN, Sign, Symptoms

__all__ = ["CannotDecide", "Confidence", "Fault", "Seen", "Severity", "Told"]

Severity = Literal["info", "warning", "error"]
Confidence = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A cause. `evidence` names file, key and value; `remedy` is the exact flag or edit; `repairable`: `--fix` mends it.

    `also`: signs that it gives beside its symptoms."""

    severity: Severity
    confidence: Confidence
    title: str
    evidence: tuple[str, ...]
    remedy: str
    symptoms: Symptoms = NOT_KNOWN
    also: tuple[Sign, ...] = ()
    repairable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A sign in logs, metrics, a run or answers, whose cause may be another rule's. `refutes`: suspicions it speaks against."""

    sign: Sign
    severity: Severity
    confidence: Confidence
    title: str
    evidence: tuple[str, ...]
    remedy: str
    refutes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotDecide:
    """A question that the evidence leaves open. `provide`: what would settle it."""

    question: str
    evidence: tuple[str, ...]
    provide: str


Told = Fault | Seen | CannotDecide
