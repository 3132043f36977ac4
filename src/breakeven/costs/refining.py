"""Where to measure the curve next: at the number of drafts where the least is known, and no longer than the asked precision needs.

At each batch the fewest and the most drafts come first. Between two measured neighbours c is bracketed (`MeasuredSurface`);
where that is not narrow enough, the middle is measured. If it lies on the line, the line holds and the others are read off it;
if not, there is a jump, and the side that hides it is halved again. So a curve without jumps costs three numbers of drafts,
however many it is wanted for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from breakeven.costs.measured_surface import MeasuredSurface

__all__ = ["first_points", "middles"]


def first_points(num_draft_tokens: Sequence[int]) -> tuple[int, ...]:
    """The fewest and the most drafts, and what lies in the middle: the least that can tell a line from a jump."""
    fewest, most = min(num_draft_tokens), max(num_draft_tokens)
    return tuple(sorted({fewest, most, _middle(num_draft_tokens, fewest, most)}))


def middles(surface: MeasuredSurface, batch: int, num_draft_tokens: Sequence[int], precision: float) -> set[int]:
    """Numbers of drafts to measure at `batch`, so that every one of `num_draft_tokens` is known to `precision`, relative to c.

    Only what the shape of the curve leaves open asks for another point. An interval that is wide because its ends are noisy asks
    for more launches of those instead.
    """
    wanted = set()
    for k in num_draft_tokens:
        if k in surface.drafts(batch):
            continue
        neighbours = surface.neighbours(batch, k)
        if neighbours is None:
            continue
        before, after = neighbours
        lower, upper = surface.measured[batch, before], surface.measured[batch, after]
        rise = upper.value - lower.value
        jump = surface.hidden_jump(batch, before, after)
        # what noise alone would show as a jump: the ends' own half widths, enlarged as a jump is when it is worked out
        noise = 0.0 if jump is None else 2.0 * math.hypot(lower.high - lower.value, upper.high - upper.value)
        open_by_shape = rise / 2.0 if jump is None else min(jump, rise) / 2.0
        if open_by_shape > precision * surface.cost(batch, k).value and (jump is None or jump > noise):
            wanted.add(_middle(num_draft_tokens, before, after))
    return wanted


def _middle(num_draft_tokens: Sequence[int], before: int, after: int) -> int:
    """The number next to the middle between two others, or the upper one where none lies between."""
    between = [k for k in num_draft_tokens if before < k < after]
    return min(between, key=lambda k: (abs(k - (before + after) / 2), k), default=after)
