"""Stretches of a log with their own accept length: neighbours are joined until every two of them differ for good."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from breakeven.readers.effects import Level, judge, level
from breakeven.readers.series import Floats

__all__ = ["MAX_BINS", "phase_edges"]

MAX_BINS = 240
# Many neighbours are compared, so more than two standard errors are asked for.
STANDARD_ERRORS = 5.0
MIN_LINES = 8


def phase_edges(lengths: Floats, rounds: Floats, num_drafted: int | None) -> list[tuple[int, int]]:
    """Index ranges of phases, in order; one that covers everything where the accept length never changes for good."""
    if not len(lengths):
        return []
    bounds = np.linspace(0, len(lengths), min(MAX_BINS, len(lengths)) + 1).astype(int)
    line_deviation = _line_deviation(lengths)

    def level_of(low: int, high: int) -> Level:
        one = level(lengths[low:high], rounds[low:high], num_drafted)
        return replace(one, error=max(one.error, line_deviation / math.sqrt(high - low)))

    ranges = [(int(low), int(high)) for low, high in itertools.pairwise(bounds)]
    levels = [level_of(low, high) for low, high in ranges]
    costs = [_cost(one, other) for one, other in itertools.pairwise(levels)]
    while costs:
        place = int(np.argmin(costs))
        if judge(levels[place], levels[place + 1], standard_errors=STANDARD_ERRORS) == "effect":
            break
        low, high = ranges[place][0], ranges[place + 1][1]
        ranges[place : place + 2] = [(low, high)]
        levels[place : place + 2] = [level_of(low, high)]
        costs.pop(place)
        for neighbour in (place - 1, place):
            if 0 <= neighbour < len(costs):
                costs[neighbour] = _cost(levels[neighbour], levels[neighbour + 1])
    return ranges


def _line_deviation(lengths: Floats) -> float:
    """s.d. of one line about its neighbours, from the median of their differences, which a change of level does not touch."""
    return 1.4826 * float(np.median(np.abs(np.diff(lengths)))) / math.sqrt(2.0) if len(lengths) > MIN_LINES else 0.0


def _cost(one: Level, other: Level) -> float:
    """Ward's: how much joining two stretches adds to the squared deviations from their means. Infinite for those that differ."""
    if judge(one, other, standard_errors=STANDARD_ERRORS) == "effect":
        return math.inf
    return (one.mean - other.mean) ** 2 * one.rounds * other.rounds / max(one.rounds + other.rounds, 1.0)
