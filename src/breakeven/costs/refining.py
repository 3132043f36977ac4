"""Where to measure the curve next: at the number of drafts where the least is known, and no longer than the asked precision needs.

At each batch the fewest and the most drafts come first, and one between. If that lies on the line, the line holds and the others
are read off it; if not, there is a jump or a bend, and the stretch that leaves most open is divided again. So a curve without jumps
costs three numbers of drafts, however many it is wanted for.
"""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.costs.measured_surface import MeasuredSurface

__all__ = ["first_points", "middles"]

_BELOW_MIDDLE = 0.4


def first_points(num_draft_tokens: Sequence[int]) -> tuple[int, ...]:
    """The fewest and the most drafts, and one between: the least that can tell a line from a jump."""
    fewest, most = min(num_draft_tokens), max(num_draft_tokens)
    return tuple(sorted({fewest, most, _middle(num_draft_tokens, fewest, most)}))


def middles(surface: MeasuredSurface, batch: int, num_draft_tokens: Sequence[int], precision: float, noise: float) -> set[int]:
    """The number of drafts to measure at `batch` so that every one of `num_draft_tokens` is known to `precision`, relative to c.

    Where that leaves most open, and one at a time, because each tells where the next should be. Only what the shape of the curve
    leaves open asks for another point, and only where it is more than `precision` beyond `noise`, the half width that points of the
    curve have at present, relative to c. An interval that is wide because its ends are noisy asks for more launches of those
    instead. Empty where nothing is asked for.
    """
    widest, wanted = 0.0, set[int]()
    for k in num_draft_tokens:
        neighbours = None if k in surface.drafts(batch) else surface.neighbours(batch, k)
        if neighbours is None:
            continue
        shapes = surface.shapes(batch, k)
        # where nothing tests the line, the whole bracket is open
        low, high = shapes or (surface.measured[batch, end].value for end in neighbours)
        is_open = (high - low) / (2.0 * surface.cost(batch, k).value)
        if is_open > max(widest, precision + (noise if shapes else 0.0)):
            widest, wanted = is_open, {_middle(num_draft_tokens, *neighbours)}
    return wanted


def _middle(num_draft_tokens: Sequence[int], before: int, after: int) -> int:
    """The number next to the middle between two others, or the upper one where none lies between.

    A little below the middle: what is left open counts relative to c, which is less there, and curves bend most at few drafts.
    """
    between = [k for k in num_draft_tokens if before < k < after]
    return min(between, key=lambda k: (abs(k - before - _BELOW_MIDDLE * (after - before)), k), default=after)
