"""What printed figures may mean: every candidate that fits, and what they settle together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from breakeven.printed.definitions import Definition
from breakeven.printed.figures import Bounds
from breakeven.printed.formulas import DraftShape, RateFormula, chain_alpha
from breakeven.versions import Span

__all__ = ["Candidate", "Reading", "common"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One meaning that fits the printed figures: a row of the table, the shape it supposes, the accept length it gives.

    allowance: what must be granted to the printed digits before it fits, such as "if a last digit was cut off"; mostly nothing.
    """

    definition: Definition
    shape: DraftShape
    accept_length: Bounds
    allowance: str = ""

    @property
    def draft_acceptance(self) -> float | None:
        """accepted / drafted at the best guess; None where the number of drafts is not known."""
        return (self.accept_length.estimate - 1.0) / self.shape.num_drafted if self.shape.num_drafted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the figures mean.

    status: "settled" (one accept length), "ambiguous" (several; `settle_by` names the fields that would decide),
        "contradictory" (`doubt` says what clashes) or "nothing printed".
    candidates: every meaning that fits, newest release first.
    accept_length: per decode step; None unless settled, or printed beside a rate that contradicts it (then not `is_trusted`).
    skips_steps: the method drafts only where it finds a match, so the number of drafts a round is only a limit.
    is_upper_bound: the true accept length is at most this: the engine left out steps without drafts (where `skips_steps`), or its
        rate counts drafts that no step kept.
    from_pair: the meaning of the rate was inferred from length and rate together.
    doubt: what makes the reading uncertain, empty if nothing does.
    """

    status: Literal["settled", "ambiguous", "contradictory", "nothing printed"]
    candidates: tuple[Candidate, ...] = ()
    accept_length: Bounds | None = None
    is_upper_bound: bool = False
    skips_steps: bool = False
    from_pair: bool = False
    doubt: str = ""
    settle_by: tuple[str, ...] = ()

    @property
    def is_trusted(self) -> bool:
        return self.status == "settled"

    @property
    def formulas(self) -> tuple[RateFormula, ...]:
        """The rate formulas that fit, without those that only differ in name at this shape."""
        kept: dict[tuple[bool, int | None, RateFormula | None], RateFormula] = {}
        for candidate in self.candidates:
            formula = candidate.definition.rate
            if formula is not None:
                kept.setdefault(_sense(formula, candidate.shape), formula)
        return tuple(kept.values())

    @property
    def spans(self) -> tuple[Span, ...]:
        """Releases that print what was printed, newest first."""
        return tuple(dict.fromkeys(candidate.definition.span for candidate in self.candidates))

    @property
    def shape(self) -> DraftShape | None:
        """The one shape that fits; None where several do."""
        shapes = {candidate.shape for candidate in self.candidates}
        return shapes.pop() if len(shapes) == 1 else None

    @property
    def draft_acceptance(self) -> float | None:
        shape = self.shape
        if self.accept_length is None or shape is None or not shape.num_drafted or self.skips_steps:
            return None
        return (self.accept_length.estimate - 1.0) / shape.num_drafted

    @property
    def chain_alpha(self) -> float | None:
        """Acceptance of each draft given those before, taken alike at every position; None for trees and unknown shapes."""
        shape = self.shape
        if self.accept_length is None or shape is None or not shape.num_drafted or not shape.is_chain or self.skips_steps:
            return None
        return chain_alpha(min(max(self.accept_length.estimate, 1.0), shape.num_drafted + 1.0), shape.num_drafted)


def common(bounds: list[Bounds]) -> Bounds | None:
    """The narrowest of them where all have a value in common; None where they have not, or there are none."""
    if not bounds or max(b.low for b in bounds) > min(b.high for b in bounds):
        return None
    return min(bounds, key=lambda b: b.high - b.low)


def _sense(formula: RateFormula, shape: DraftShape) -> tuple[bool, int | None, RateFormula | None]:
    """Equal for formulas that give the same number at this shape."""
    odd_one_out = formula if formula in {RateFormula.SHARE_OF_OUTPUT, RateFormula.CHAIN_ALPHA} else None
    return formula.counts_bonus, formula.denominator(shape), odd_one_out
