"""Which number of drafts to run at which batch, from predicted speedups, and what one fixed number loses against that.

At every measured batch speculation must pay with its whole interval, or no drafts are taken: what is undecided is not switched on.
Among the numbers that pay the best one is taken, unless the one of the batch below cannot be told from it: then that one stays, so
that a schedule does not flutter with noise. A batch between two measured ones takes what the one above it takes, because c was not
measured in between and speculation gets dearer with the batch; beyond the largest, none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from breakeven.costs.payoff import BatchChoice, Expected
from breakeven.costs.surface import Cost
from breakeven.units import plural

__all__ = ["FixedChoice", "Schedule", "Stretch", "make_schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Batches `first` to `last`, both included (None: and beyond), all with `num_drafted` drafts. `why` says it in a sentence.

    speedup: what is predicted at the largest measured batch of the stretch; None where nothing is drafted.
    idle: where nothing is drafted, what carrying the drafter costs, in plain steps, at the dearest measured batch; None: unknown.
    """

    first: int
    last: int | None
    num_drafted: int
    why: str
    speedup: Expected | None = None
    idle: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedChoice:
    """One number of drafts at every batch. `worst_loss` (0.1: 10 % slower than the schedule) is at `worst_batch`, by value.

    undecided: measured batches where the schedule rests because nothing tells whether these drafts pay.
    """

    num_drafted: int
    worst_loss: float
    worst_batch: int
    undecided: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`fixed` is the single number of drafts that loses least against the schedule; where plain decoding does, that is 0."""

    stretches: tuple[Stretch, ...]
    fixed: FixedChoice

    @property
    def most_drafted(self) -> int:
        return max(stretch.num_drafted for stretch in self.stretches)


def make_schedule(choices: Sequence[BatchChoice], idle: Mapping[int, Cost] | None = None) -> Schedule:
    """From the predictions at every measured batch, and what a loaded drafter costs where it rests (`idle`, by batch).

    Raises:
        ValueError: there is none.
    """
    if not choices:
        raise ValueError("a schedule needs predictions for at least one batch")
    stretches: list[Stretch] = []
    before: Expected | None = None
    last_batch = 0
    for choice in sorted(choices, key=lambda choice: choice.batch):
        taken, why = _taken(choice, before)
        num_drafted = 0 if taken is None else taken.num_drafted
        if stretches and stretches[-1].num_drafted == num_drafted:
            first, why = stretches[-1].first, stretches[-1].why if num_drafted == 0 else why
            stretches.pop()
        else:
            first = last_batch + 1
        stretches.append(Stretch(first=first, last=choice.batch, num_drafted=num_drafted, why=why, speedup=taken))
        before, last_batch = taken, choice.batch
    beyond = f"nothing was measured beyond {plural(last_batch, 'running request')}"
    if stretches[-1].num_drafted == 0:
        last = stretches.pop()
        stretches.append(Stretch(first=last.first, last=None, num_drafted=0, why=last.why))
    else:
        stretches.append(Stretch(first=last_batch + 1, last=None, num_drafted=0, why=beyond))
    resting = {} if idle is None or all(stretch.num_drafted == 0 for stretch in stretches) else idle
    stretches = [replace(stretch, idle=_dearest(stretch, resting)) for stretch in stretches]
    return Schedule(stretches=tuple(stretches), fixed=_best_fixed(choices, stretches, resting))


def _dearest(stretch: Stretch, idle: Mapping[int, Cost]) -> Cost | None:
    if stretch.num_drafted:
        return None
    inside = [cost for batch, cost in idle.items() if stretch.first <= batch and (stretch.last is None or batch <= stretch.last)]
    return max(inside, key=lambda cost: cost.value, default=None)


def _taken(choice: BatchChoice, before: Expected | None) -> tuple[Expected | None, str]:
    paying = [row for row in choice.rows if row.outcome == "pays"]
    if not paying:
        best = max(choice.rows, key=lambda row: row.speedup, default=None)
        if best is None:
            return None, f"no number of drafts is known at {plural(choice.batch, 'running request')}"
        shown = f"{plural(best.num_drafted, 'draft')}: {best.speedup:.2f}x [{best.low:.2f}, {best.high:.2f}]"
        verb = "would not pay" if best.outcome in ("slower", "no useful difference") else "is not decided to pay"
        return None, f"even the best {verb} at {plural(choice.batch, 'running request')} ({shown})"
    best = max(paying, key=lambda row: row.speedup)
    kept = None if before is None else next((row for row in paying if row.num_drafted == before.num_drafted), None)
    if kept is not None and kept is not best and kept.high >= best.speedup:
        return kept, (
            f"{kept.speedup:.2f}x [{kept.low:.2f}, {kept.high:.2f}] at {plural(choice.batch, 'running request')}, not to be told "
            f"from {plural(best.num_drafted, 'draft')} ({best.speedup:.2f}x)"
        )
    return best, f"{best.speedup:.2f}x [{best.low:.2f}, {best.high:.2f}] at {plural(choice.batch, 'running request')}"


def _best_fixed(choices: Sequence[BatchChoice], stretches: Sequence[Stretch], idle: Mapping[int, Cost]) -> FixedChoice:
    """The number of drafts whose worst loss against the schedule, over the measured batches, is the smallest.

    A schedule that rests pays for the drafter it carries (`idle`); 0 drafts as the fixed choice is a server without one.
    """
    everywhere = set.intersection(*({row.num_drafted for row in choice.rows} for choice in choices))
    fixed = []
    for num_drafted in sorted({0, *everywhere}):
        losses = [(1.0 - _speedup(choice, num_drafted) / _by_schedule(choice, stretches, idle), choice.batch) for choice in choices]
        loss, batch = max(losses)
        undecided = tuple(
            choice.batch
            for choice in choices
            if _scheduled(stretches, choice.batch) == 0
            and any(row.num_drafted == num_drafted and row.outcome == "undecided" for row in choice.rows)
        )
        fixed.append(FixedChoice(num_drafted=num_drafted, worst_loss=max(0.0, loss), worst_batch=batch, undecided=undecided))
    return min(fixed, key=lambda one: (one.worst_loss, one.num_drafted))


def _speedup(choice: BatchChoice, num_drafted: int) -> float:
    return next((row.speedup for row in choice.rows if row.num_drafted == num_drafted), 1.0)


def _by_schedule(choice: BatchChoice, stretches: Sequence[Stretch], idle: Mapping[int, Cost]) -> float:
    num_drafted = _scheduled(stretches, choice.batch)
    if num_drafted == 0 and choice.batch in idle:
        return 1.0 / idle[choice.batch].value
    return _speedup(choice, num_drafted)


def _scheduled(stretches: Sequence[Stretch], batch: int) -> int:
    return next(s.num_drafted for s in stretches if s.first <= batch and (s.last is None or batch <= s.last))
