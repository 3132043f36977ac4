"""Time left is said once it is known, and by the pace of what ended."""

from __future__ import annotations

import heapq
import random

import pytest

from breakeven.drafter.data.time_left import KNOWN_FROM_ENDS, KNOWN_FROM_S, TimeLeft


def test_loading_does_not_count_and_nothing_is_said_before_it_is_known():
    left = TimeLeft()
    assert left(0, 100, 0.0) is None
    assert left(1, 99, 500.0) is None  # a model was loaded and compiled
    told = [left(1 + n, 99 - n, 500.0 + n) for n in range(1, 100)]
    assert told[: KNOWN_FROM_ENDS - 1] == [None] * (KNOWN_FROM_ENDS - 1)
    assert told[KNOWN_FROM_ENDS - 1 : -1] == [pytest.approx(99 - n) for n in range(KNOWN_FROM_ENDS, 99)]
    assert told[-1] is None  # nothing is left


def test_many_that_end_at_once_are_no_pace():
    left = TimeLeft()
    left(1, 2000, 10.0)
    assert left(300, 1701, 10.001) is None
    assert left(600, 1401, 10.0 + KNOWN_FROM_S - 0.1) is None
    assert left(600, 1401, 10.0 + 2 * KNOWN_FROM_S) == pytest.approx(1401 * 2 * KNOWN_FROM_S / 599)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_of_a_full_batch_is_near_the_truth_from_the_first_time_on(seed):
    """32 at once, of which the shortest end first, after a minute of loading."""
    chance = random.Random(seed)
    lengths = [min(384, 1 + int(chance.expovariate(1 / 150))) for _ in range(600)]
    running = [60 + length / 10 for length in lengths[:32]]
    heapq.heapify(running)
    ends = []
    for length in lengths[32:]:
        ends.append(running[0])
        heapq.heapreplace(running, running[0] + length / 10)
    ends += sorted(running)
    left = TimeLeft()
    for num_done, now_s in enumerate(ends[:500], start=1):
        told = left(num_done, len(ends) - num_done, now_s)
        if told is not None:
            assert 0.5 < told / (ends[-1] - now_s) < 1.6, num_done
