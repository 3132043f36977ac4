"""The first draft is good, the ones after it fall steeply.

Detects: a normal rate at the first position and a second one that, given the first, is right less than half as often.

Why it hurts: only the first draft pays. Healthy heads lose little from position to position (0.73, 0.52, 0.35 is 0.73, 0.71, 0.67
of those before). Each further draft starts from the head's own state, so that state is what is wrong: norm_output or
norm_before_residual in the other sense, or a head that was trained for one step only.

Evidence: the rates by position.

Remedy: the norm flags of the drafter against the engine's release; the number of steps it was trained for.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told

NORMAL_FIRST = 0.4
STEEP = 0.5
ENOUGH_ROUNDS = 200
DEAD = 0.0005


def check(evidence: Evidence) -> Iterator[Told]:
    for one in evidence.observed:
        if len(one.joint) < 2 or one.level.rounds < ENOUGH_ROUNDS:
            continue
        first, second = one.joint[0], one.joint[1]
        if first < NORMAL_FIRST or second < DEAD or second / first >= STEEP * first:
            continue
        yield Seen(
            sign="steep-decay",
            severity="warning",
            confidence="medium",
            title=f"{one.source}: {100 * first:.0f} % of first drafts are right, {100 * second / first:.0f} % of those after them",
            evidence=(
                f"{one.source}: by position {', '.join(f'{rate:.3f}' for rate in one.joint[:8])}, {one.level.rounds:.0f} rounds",
            ),
            remedy="Compare norm_output and norm_before_residual with what this release reads; ask for its training steps.",
        )
