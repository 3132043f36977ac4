"""One line of a picture as a Plotly trace: its look, which colour alone never tells, and its error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.verdict.result import Interval

__all__ = ["MAX_LEGEND_NAME", "Look", "top_of_axis", "trace"]

# Okabe and Ito's colour-blind-safe palette without black and yellow, which vanish on a dark or a light page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon", "triangle-down", "bowtie", "pentagon",
    "hourglass",
)  # fmt: skip
DASHES = ("solid", "dash", "longdash", "dashdot")
MAX_LEGEND_NAME = 28
# A wider interval runs off the picture rather than flattening everything else.
MAX_OVERSHOOT = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Numbers beyond a palette wrap round; a line's dash changes when its colour comes again."""

    colour: int
    symbol: int
    width: int = 2
    dash: str | None = None
    hollow: bool = False


def trace(name: str, xs: Sequence[float], values: Sequence[Interval], look: Look) -> dict[str, Any]:
    """A line with marks; error bars where there are intervals. An infinite side becomes null in JSON, and so has no bar."""
    colour = COLOURS[look.colour % len(COLOURS)]
    dash = look.dash or DASHES[look.colour // len(COLOURS) % len(DASHES)]
    symbol = SYMBOLS[look.symbol % len(SYMBOLS)] + ("-open" if look.hollow else "")
    shown: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(xs),
        "y": [value.estimate for value in values],
        "line": {"color": colour, "width": look.width, "dash": dash},
        "marker": {"color": colour, "symbol": symbol, "size": 9},
        "hovertemplate": "%{y:.4g}<extra>%{fullData.name}</extra>",
    }
    highs = [_distance(value.high, value.estimate) for value in values]
    lows = [_distance(value.estimate, value.low) for value in values]
    if any(bound is not None for bound in (*highs, *lows)):
        shown["error_y"] = {"type": "data", "symmetric": False, "array": highs, "arrayminus": lows, "thickness": 1.2, "width": 4}
    return shown


def top_of_axis(values: Sequence[Interval]) -> float:
    """Where a vertical axis that begins at 0 ends."""
    known = [value for value in values if math.isfinite(value.estimate)]
    highest = max((value.estimate for value in known), default=1.0)
    return 1.05 * max(min(value.high or value.estimate, MAX_OVERSHOOT * highest) for value in known) if known else 1.0


def _distance(upper: float | None, lower: float | None) -> float | None:
    """The length of half an error bar, None where that side has no bound."""
    return None if upper is None or lower is None else upper - lower
