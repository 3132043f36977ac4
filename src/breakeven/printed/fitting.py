"""Which definitions fit the printed figures, within what rounding, cutting off or averaging can have done to their digits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from breakeven.printed.definitions import Definition
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.printed.formulas import DraftShape
from breakeven.printed.result import Candidate

__all__ = ["Printed"]

# Drafts a round tried where their number is not reported; the inverse problem has too many answers beyond.
DRAFTS_TRIED = range(1, 16)
_ROUNDING_SLACK = 1e-9
# A length and a rate averaged over slightly different lines disagree by a few tenths of a percent; the formulas differ by far more.
AVERAGING_SLACK = 0.005
# What is granted to printed digits, strictest first: how much wider than rounding, relatively, and in words.
_ALLOWANCES = (
    (1.0, 0.0, ""),
    (2.0, 0.0, "if a last digit was cut off instead of rounded"),
    (2.0, AVERAGING_SLACK, "if these are averages over different lines"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """The figures that were printed together, of a method that `skips_steps` (see `Reading`) or not."""

    length: PrintedFigure | None
    rate: PrintedFigure | None
    skips_steps: bool

    def candidates(self, rows: Iterable[Definition], shape: DraftShape) -> tuple[Candidate, ...]:
        """Rows that fit as rounded; failing that, as cut off after the last digit by hand; failing that, as averages."""
        rows = tuple(rows)
        return next((found for given in _ALLOWANCES if (found := self._fitting(rows, shape, *given))), ())

    def _fitting(
        self, rows: tuple[Definition, ...], shape: DraftShape, widening: float, relative: float, allowance: str
    ) -> tuple[Candidate, ...]:
        found = []
        for row in reversed(rows):
            for tried in self._shapes(row, shape):
                bounds = self._meet(row, tried, widening, relative)
                if bounds is not None:
                    found.append(Candidate(definition=row, shape=tried, accept_length=bounds, allowance=allowance))
        return tuple(found)

    def _shapes(self, row: Definition, shape: DraftShape) -> Iterable[DraftShape]:
        if self.rate is None or row.rate is None or row.rate.is_defined_for(shape):
            return (shape,)
        if self.length is None:
            return ()
        # the depth bounds nothing new here: a chain of as many steps as drafts is the plainest shape with this denominator
        return tuple(
            DraftShape(num_drafted=shape.num_drafted or drafts, num_steps=shape.num_steps or drafts, is_chain=shape.is_chain)
            for drafts in DRAFTS_TRIED
            if drafts <= (shape.num_drafted or drafts)
        )

    def _meet(self, row: Definition, shape: DraftShape, widening: float, relative: float) -> Bounds | None:
        allowed = Bounds(1.0, 1.0 - _ROUNDING_SLACK, float(shape.max_length or 1e9) + _ROUNDING_SLACK)
        if self.length is not None:
            printed = row.length.to_true(_widened(self.length, widening, relative))
            met = printed.meet(allowed)
            if met is None:
                return None
            allowed = met
        if self.rate is None:
            return allowed
        if row.rate is None:
            return None
        rated = _widened(self.rate, widening, relative)
        try:
            ends = [row.rate.accept_length(value, shape) for value in (rated.estimate, max(rated.low, 0.0), rated.high)]
        except ValueError:
            return None
        from_rate = Bounds(*ends)
        if self.skips_steps and self.length is not None:
            # fewer drafts than allowed were proposed on average, so the rate only bounds the length from above
            from_rate = Bounds(min(from_rate.estimate, allowed.estimate), 1.0, from_rate.high)
        return allowed.meet(from_rate) if self.length is not None else from_rate.meet(allowed)


def _widened(figure: PrintedFigure, widening: float, relative: float) -> Bounds:
    slack = max(figure.half_width * widening, figure.value * relative) + _ROUNDING_SLACK
    return Bounds(figure.value, figure.value - slack, figure.value + slack)
