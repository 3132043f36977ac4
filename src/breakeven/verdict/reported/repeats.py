"""Several runs of one reported figure: how far the ratio of two such figures may be from what more runs would show.

Repeats of one server understate how launches differ, so a narrow spread proves nothing by itself; a wide one shows that a ratio is
not known. Welch's interval over the logarithms; where one side was run once, it is taken to spread like the other.
"""

from __future__ import annotations

import math
import statistics

from scipy.special import stdtrit

from breakeven.printed.figures import PrintedFigure
from breakeven.stats.spending import ALPHA

__all__ = ["ratio_of_runs"]


def ratio_of_runs(mine: PrintedFigure, theirs: PrintedFigure) -> tuple[float, float] | None:
    """The interval of mine / theirs; None where neither was run more than once."""
    logs = [[math.log(value) for value in figure.runs or (figure.value,)] for figure in (mine, theirs)]
    sizes = [len(values) for values in logs]
    if max(sizes) < 2:
        return None
    known = [statistics.variance(values) if len(values) > 1 else None for values in logs]
    spread = next(value for value in known if value is not None)
    variances = [spread if value is None else value for value in known]
    errors = [variance / size for variance, size in zip(variances, sizes, strict=True)]
    total = math.fsum(errors)
    centre = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    if total <= 0.0:
        return math.exp(centre), math.exp(centre)
    freedom = total**2 / math.fsum(
        error**2 / (size - 1) for error, size, value in zip(errors, sizes, known, strict=True) if value is not None
    )
    if None in known:
        # the spread itself rests on one side's runs alone
        freedom = max(sizes) - 1.0
    half = float(stdtrit(freedom, 1.0 - ALPHA / 2)) * math.sqrt(total)
    return math.exp(centre - half), math.exp(centre + half)
