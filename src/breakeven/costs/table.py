"""Rows of published speedups: who measured what where, with the intervals that their printed digits leave.

A table of speedups has one row for each configuration and data set: accept length, plain and speculative speed or their ratio.
`table_file.py` reads it from CSV.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.printed.figures import Bounds

__all__ = ["Shape", "TableRow"]

# where c can be compared, contexts lie within this factor of each other
SAME_CONTEXT = 2.0


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """How much is drafted a round; a part that was not reported is 0, which is never equal to a known one by accident."""

    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0

    @property
    def is_chain(self) -> bool:
        return self.topk == 1 and self.steps > 0

    @property
    def num_drafted(self) -> int | None:
        """Drafts of a chain; None for trees and where it is not known."""
        return self.steps if self.is_chain else None

    @property
    def longest(self) -> int | None:
        """The accept length if every draft on the deepest path is accepted."""
        return self.steps + 1 if self.steps else None

    def __str__(self) -> str:
        if self == Shape():
            return "shape not reported"
        return f"k={self.steps}" if self.is_chain else f"{self.steps or '?'}-{self.topk or '?'}-{self.draft_tokens or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """`speedup` None where it is to be predicted; `accept_length` None where it was not reported.

    context: cached tokens of a request, None where not reported. refused: why the row contradicts itself, empty if it does not.
    """

    number: int
    setup: str
    target: str
    where: tuple[str, ...]
    method: str
    drafter: str
    shape: Shape
    dataset: str
    concurrency: str
    accept_length: Bounds | None
    speedup: Bounds | None
    plain_speed: float | None
    context: float | None = None
    refused: str = ""

    def has_context_of(self, other: TableRow) -> bool:
        """No reported difference in context beyond what data sets of one setting have."""
        if self.context is None or other.context is None:
            return True
        return 1.0 / SAME_CONTEXT <= self.context / other.context <= SAME_CONTEXT

    @property
    def machine(self) -> tuple[str, ...]:
        """Target, precision, hardware, engine, tensor parallel size, unit and load: what c belongs to besides the drafter."""
        return (self.target, *self.where, self.concurrency)

    @property
    def deployment(self) -> tuple[str, ...]:
        return (*self.machine, self.method)

    @property
    def cost(self) -> Bounds | None:
        """c = AL / speedup with what rounding leaves of it."""
        if self.accept_length is None or self.speedup is None:
            return None
        return Bounds(
            self.accept_length.estimate / self.speedup.estimate,
            self.accept_length.low / self.speedup.high,
            self.accept_length.high / self.speedup.low,
        )

    @property
    def highest_cost(self) -> float | None:
        """The most c can be: from the accept length, or, where that is not known, from the most that this shape can accept."""
        if self.speedup is None:
            return None
        cost = self.cost
        if cost is not None:
            return cost.high
        return self.shape.longest / self.speedup.low if self.shape.longest is not None else None

    @property
    def why_impossible(self) -> str:
        """Why these figures cannot all be true; empty where they can."""
        if self.refused:
            return self.refused
        length, longest = self.accept_length, self.shape.longest
        if length is not None and longest is not None and length.low > longest:
            return f"accept length {length.estimate:g} is above {longest}, the most that {self.shape} can give"
        if self.highest_cost is not None and self.highest_cost < IMPOSSIBLE_BELOW:
            return (
                f"a round would cost at most {self.highest_cost:.2f} plain steps; below {IMPOSSIBLE_BELOW:g} is impossible, so the "
                "baseline or the accept length is wrong"
            )
        return ""

    @property
    def label(self) -> str:
        load = f" at c={self.concurrency}" if self.concurrency else ""
        return " / ".join(part for part in (self.target, self.drafter, str(self.shape), self.dataset) if part) + load
