"""Figures and lists as the texts of a verdict print them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from breakeven.acceptance import Acceptance
from breakeven.stats.intervals import Estimate
from breakeven.units import plural
from breakeven.verdict.result import Interval

__all__ = ["accepted_drafts", "figure", "figure_of_log", "in_words", "interval_of_log", "listed", "load_list", "percent", "ratio"]


# load points that a sentence names one by one
_MOST_LOADS = 4


def interval_of_log(log: Estimate) -> Interval:
    """The interval of exp(log). Open where the data allow none."""
    level = round(1.0 - log.alpha, 4)
    if not log.usable:
        return Interval(estimate=math.exp(log.value), level=level)
    return Interval(estimate=math.exp(log.value), low=math.exp(log.low), high=math.exp(log.high), level=level)


def ratio(interval: Interval) -> str:
    """ "1.21x (1.12 to 1.30)"."""
    return f"{interval.estimate:.2f}x{_bounds(interval)}"


def figure(interval: Interval) -> str:
    """ "1.62 (1.60 to 1.64)"."""
    return f"{interval.estimate:.2f}{_bounds(interval)}"


def figure_of_log(log: Estimate) -> str:
    """The same of a ratio whose logarithm was estimated."""
    return figure(interval_of_log(log))


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def accepted_drafts(counts: Acceptance) -> str:
    """ "12 of 300 drafts accepted"; without the 300 where the server does not count what it drafts."""
    if counts.num_drafted < counts.num_accepted or counts.num_drafted == 0 < counts.num_rounds:
        return f"{plural(counts.num_accepted, 'draft')} accepted"
    return f"{counts.num_accepted} of {plural(counts.num_drafted, 'draft')} accepted"


def listed(items: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *most, last = list(items) or ["nothing"]
    return f"{', '.join(most)} and {last}" if most else last


def in_words(schedule: Sequence[tuple[int, int, int]]) -> str:
    """Drafts by running requests: "3 drafts at 1 to 8, none from 9 on"."""
    told = []
    for place, (first, last, drafts) in enumerate(schedule):
        where = f"from {first} on" if place == len(schedule) - 1 else f"at {first}" if first == last else f"at {first} to {last}"
        told.append(f"{plural(drafts, 'draft') if drafts else 'none'} {where}")
    return ", ".join(told)


def load_list(loads: Sequence[str]) -> str:
    """ "c=1, c=2 and c=4"; "c=1 to c=128 (8 load points)" for long lists."""
    return listed(loads) if len(loads) <= _MOST_LOADS else f"{loads[0]} to {loads[-1]} ({len(loads)} load points)"


def _bounds(interval: Interval) -> str:
    return "" if interval.low is None or interval.high is None else f" ({interval.low:.2f} to {interval.high:.2f})"
