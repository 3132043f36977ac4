"""Which figure stands where: a result by arm and load point, so that every renderer finds the same figures the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from breakeven.verdict.result import ArmInfo, BestOfArm, BreakEvenPoint, Cell, Comparison, Result, Side

__all__ = ["Lookup"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Answers are None where the result has no such figure."""

    result: Result
    arms: dict[str, ArmInfo] = field(init=False)
    comparisons: dict[tuple[str, str], Comparison] = field(init=False)
    bests: dict[str, BestOfArm] = field(init=False)
    _points: dict[tuple[str, int, str], BreakEvenPoint] = field(init=False)

    def __post_init__(self) -> None:
        fill = object.__setattr__
        fill(self, "arms", {arm.name: arm for arm in self.result.arms})
        fill(self, "comparisons", {(item.arm, item.load): item for item in self.result.comparisons})
        fill(self, "bests", {best.arm: best for best in self.result.own_best})
        fill(self, "_points", {(point.method, point.num_draft_tokens, point.load): point for point in self.result.break_even})

    def comparison(self, arm: str, load: str) -> Comparison | None:
        return self.comparisons.get((arm, load))

    def is_baseline(self, arm: str, load: str) -> bool:
        """Whether arms were compared with this one: the run's one baseline, or at this load where each engine has its own."""
        return arm == self.result.baseline or any(c.baseline == arm for c in self.comparisons.values() if c.load == load)

    def break_even(self, arm: str, load: str) -> BreakEvenPoint | None:
        """The break-even point of the arm's own shape: same method, same number of drafts."""
        info = self.arms.get(arm)
        if info is None:
            return None
        if not info.schedule:
            return self._points.get((info.method, info.num_draft_tokens or 0, load))
        batch = next((item.concurrency for item in self.result.loads if item.label == load), None)
        return self._points.get((info.method, info.drafts_at(batch) or -1, load)) if batch else None

    def break_even_of(self, shape: tuple[str, int], load: str) -> BreakEvenPoint | None:
        return self._points.get((*shape, load))

    @property
    def shapes(self) -> list[tuple[str, int]]:
        """Every (method, drafts a round) that has a break-even point, sorted."""
        return sorted({(point.method, point.num_draft_tokens) for point in self.result.break_even})

    @property
    def shapes_with_lines(self) -> list[tuple[str, int]]:
        """`shapes`, and those whose break-even is only read off lines between others."""
        return sorted({*self.shapes, *((point.method, point.num_draft_tokens) for point in self.result.break_even_between)})

    def side(self, arm: str, load: str) -> Side | None:
        """Where the arm's accept length stands to the break-even of its own number of drafts."""
        return next((item.side for item in self.result.standings if (item.arm, item.load) == (arm, load)), None)

    def is_probe(self, arm: str) -> bool:
        """Accepts to order, so it measures what a round costs and is no candidate to be run."""
        info = self.arms.get(arm)
        return info is not None and info.is_probe

    def cells_by_load(self) -> Iterator[tuple[str, list[Cell]]]:
        """Load points in the result's order, each with its cells, an empty one for an arm whose figure there is only predicted."""
        measured = {(cell.arm, cell.load) for cell in self.result.cells}
        for load in self.result.loads:
            cells = [cell for cell in self.result.cells if cell.load == load.label]
            for arm, where in self.comparisons:
                if where == load.label and (arm, where) not in measured:
                    cells.append(Cell(arm=arm, load=where))
            if cells:
                yield load.label, cells
