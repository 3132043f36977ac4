"""What to measure next: a pure function of the plan and of what the store holds, so that a killed run goes on as it would have.

A block launches every arm once. Where arms live side by side, a block's trials interleave; elsewhere arms take turns: launched,
measured at every load point, ended. Orders are counterbalanced, because machines drift: at the n-th pass over the arms the base
order is rotated by n // 2 and reversed when n is odd (ABBA), so that over two passes every arm has stood before every other as
often as after it, and over 2 x arms passes in every place. The base order comes from the plan's seed.

Blocks 0 .. launches.min - 1 measure everything. After each complete block the comparisons that are still open are measured again,
up to launches.max. A plan with a curve chooses its points from the first block on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from breakeven.experiment.plan_schema import Plan
from breakeven.loadgen.samples import LoadPoint

__all__ = ["MAX_ATTEMPTS", "BlockSteps", "Done", "Key", "Pair", "Step", "next_block", "planned_steps"]

# A trial that turns out void is tried again this often in all, then left void: what voids it is lasting.
MAX_ATTEMPTS = 3
# More than any curve needs: each of its points ends after launches.max launches.
MAX_CURVE_BLOCKS = 1000

# An arm and the label of a load point.
Pair = tuple[str, str]
# Arm, label of the load point, block, repeat.
Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One trial to measure. `order` is its place in the block."""

    arm: str
    load: LoadPoint
    block: int
    repeat: int
    order: int
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Where one (arm, load, block, repeat) stands: tries ever made, tries that count against `MAX_ATTEMPTS`, one of them valid."""

    attempts: int = 0
    spent: int = 0
    valid: bool = False

    @property
    def settled(self) -> bool:
        return self.valid or self.spent >= MAX_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSteps:
    """What is left of a block, in order. `turns` are groups of arms that are alive together: one, or one an arm."""

    block: int
    turns: tuple[tuple[Step, ...], ...]


def next_block(
    plan: Plan,
    done: dict[Key, Done],
    failed: Iterable[str],
    open_comparisons: Callable[[int], frozenset[Pair]],
    *,
    side_by_side: bool,
) -> BlockSteps | None:
    """The first block with something left to measure; None when the plan has been carried out.

    failed: arms that cannot be served; they are left out.
    open_comparisons: given the number of complete blocks, the (arm, load) pairs whose comparison those blocks left undecided. Asked
        about blocks, not about trials, so that a block begun before a kill is continued as it was planned.
    """
    failed = frozenset(failed)
    # points of a curve that begin late have their launches in later blocks
    for block in range(plan.launches.max if plan.curve is None else MAX_CURVE_BLOCKS):
        wanted: frozenset[Pair] | None = None
        if block >= plan.launches.min or plan.curve is not None:
            wanted = open_comparisons(block)
            if not any(arm not in failed for arm, _ in wanted):
                return None
        turns = []
        for turn in planned_steps(plan, block, wanted, side_by_side=side_by_side):
            left = [_left(step, done) for step in turn if step.arm not in failed]
            if kept := tuple(step for step in left if step is not None):
                turns.append(kept)
        if turns:
            return BlockSteps(block=block, turns=tuple(turns))
    return None


def planned_steps(
    plan: Plan, block: int, wanted: frozenset[Pair] | None = None, *, side_by_side: bool
) -> tuple[tuple[Step, ...], ...]:
    """Every trial of a block, in groups of arms alive together. `wanted` keeps those pairs, and the baseline at their loads."""
    loads = plan.loads()
    if block % 2:
        loads = loads[::-1]
    repeats = plan.trial.repeats
    names = [arm.name for arm in plan.arms()]
    random.Random(plan.seed).shuffle(names)
    if side_by_side:
        groups = [
            [
                (arm, load, repeat)
                for place, load in enumerate(loads)
                for repeat in range(repeats)
                for arm in _counterbalanced(names, block * repeats + repeat, shift=place)
            ]
        ]
    else:
        groups = [[(arm, load, repeat) for load in loads for repeat in range(repeats)] for arm in _counterbalanced(names, block)]
    order, turns = 0, []
    for group in groups:
        turn = []
        for arm, load, repeat in group:
            if wanted is None or _is_wanted(arm, load.label, wanted, plan.baseline):
                turn.append(Step(arm=arm, load=load, block=block, repeat=repeat, order=order))
            order += 1
        if turn:
            turns.append(tuple(turn))
    return tuple(turns)


def _counterbalanced(names: Sequence[str], n: int, *, shift: int = 0) -> list[str]:
    turn = (n // 2 + shift) % len(names)
    rotated = [*names[turn:], *names[:turn]]
    return rotated[::-1] if n % 2 else rotated


def _is_wanted(arm: str, label: str, wanted: frozenset[Pair], baseline: str) -> bool:
    return (arm, label) in wanted or (arm == baseline and any(label == other for _, other in wanted))


def _left(step: Step, done: dict[Key, Done]) -> Step | None:
    known = done.get((step.arm, step.load.label, step.block, step.repeat))
    if known is None:
        return step
    if known.settled:
        return None
    return Step(arm=step.arm, load=step.load, block=step.block, repeat=step.repeat, order=step.order, attempt=known.attempts)
