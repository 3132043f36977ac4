"""Between measured points of the curve: brackets, lines that were tested, and jumps that are never smoothed over."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.costs.measured_surface import MeasuredSurface, half_width
from breakeven.costs.refining import first_points, middles
from breakeven.costs.surface import Cost, UnknownCost

DRAFTS = (1, 2, 3, 4, 5, 6, 7)


def cost(value: float, width: float = 0.02) -> Cost:
    return Cost(value=value, low=value * (1 - width), high=value * (1 + width))


def surface(points: dict[int, float], width: float = 0.02, batch: int = 8) -> MeasuredSurface:
    return MeasuredSurface(measured={(batch, k): cost(value, width) for k, value in points.items()})


def test_no_drafts_cost_nothing_and_measured_points_stay_as_they_are() -> None:
    known = surface({1: 1.1, 7: 1.7})
    assert known.cost(8, 0) == Cost(value=1.0, low=1.0, high=1.0)
    assert known.cost(8, 7) == cost(1.7)


def test_beyond_what_was_measured_nothing_is_known() -> None:
    known = surface({1: 1.1, 7: 1.7})
    with pytest.raises(UnknownCost, match="beyond those measured at 8 running requests \\(1, 7\\)"):
        known.cost(8, 9)
    with pytest.raises(UnknownCost, match="16 running requests \\(measured: 8\\)"):
        known.cost(16, 3)


def test_an_untested_line_is_no_more_than_a_bracket() -> None:
    between = surface({1: 1.1, 7: 1.7}).cost(8, 4)
    assert between.value == pytest.approx(1.4)
    assert between.low == pytest.approx(1.1 * 0.98)
    assert between.high == pytest.approx(1.7 * 1.02)


def test_a_line_that_holds_in_the_middle_is_read_with_little_more_than_the_ends_own_doubt() -> None:
    known = surface({1: 1.1, 4: 1.4, 7: 1.7})
    between = known.cost(8, 2)
    assert between.value == pytest.approx(1.2)
    # by hand, in units of c: what the ends share 0.0170, their own 0.0123, a possible jump's 0.0244 by a third or two thirds
    assert half_width(between) == pytest.approx(0.0204, abs=1e-4)
    assert known.shapes(8, 2) == pytest.approx((1.2, 1.2))
    # twice the noise, twice the interval; none without
    wider = surface({1: 1.1, 4: 1.4, 7: 1.7}, width=0.04).cost(8, 2)
    assert half_width(wider) == pytest.approx(2 * half_width(between))


def test_noise_of_a_possible_jump_widens_what_is_read_off() -> None:
    exact = {k: cost(1.0 + 0.1 * k, 0.0) for k in (1, 3, 7)}
    noisy = exact | {7: cost(1.7, 0.06)}
    before = MeasuredSurface(measured={(8, k): found for k, found in exact.items()}).cost(8, 2)
    after = MeasuredSurface(measured={(8, k): found for k, found in noisy.items()}).cost(8, 2)
    # 7 is no end of the stretch that 2 lies in, but it says how steep the line is
    assert half_width(before) == pytest.approx(0.0)
    assert half_width(after) > 0.004


def test_a_jump_keeps_its_stretch_a_bracket_and_leaves_the_others_lines() -> None:
    # straight but for a jump by 2.0 between 5 and 6 drafts
    known = surface({1: 1.1, 2: 1.2, 4: 1.4, 5: 1.5, 6: 3.6, 7: 3.7})
    assert half_width(known.cost(8, 3)) < 0.03
    assert known.hidden_jump(8, 5, 6) == pytest.approx(2.0)
    wide = surface({1: 1.1, 4: 1.4, 7: 3.7})
    assert wide.cost(8, 5).low < 1.5
    assert wide.cost(8, 6).high > 3.6


@given(
    jump=st.floats(0.0, 5.0),
    after=st.sampled_from((1, 2, 3, 4, 5, 6)),
    slope=st.floats(0.01, 0.5),
    measured=st.sets(st.sampled_from((2, 3, 4, 5, 6))),
)
def test_wherever_one_jump_lies_the_interval_holds_the_truth(jump: float, after: int, slope: float, measured: set[int]) -> None:
    truth = {k: 1.0 + slope * k + (jump if k > after else 0.0) for k in DRAFTS}
    known = surface({k: truth[k] for k in (1, 7, *measured)}, width=0.0)
    for k in DRAFTS:
        found = known.cost(8, k)
        assert found.low <= truth[k] * (1 + 1e-9)
        assert found.high >= truth[k] * (1 - 1e-9)


def test_noise_counts_in_full_where_a_jump_is_seen() -> None:
    beyond = []
    for middle in (1.3, 1.44):
        known = surface({1: 1.1, 3: middle, 7: 1.7})
        low, high = known.shapes(8, 2) or (0.0, 0.0)
        found = known.cost(8, 2)
        beyond.append((low - found.low, found.high - high))
    assert beyond[1][0] > 1.25 * beyond[0][0]
    assert beyond[1][1] > 1.25 * beyond[0][1]


@given(
    steps=st.lists(st.floats(0.0, 0.5), min_size=7, max_size=7),
    flattens=st.booleans(),
    measured=st.sets(st.sampled_from((2, 3, 4, 5, 6)), min_size=1),
)
def test_a_curve_that_bends_one_way_stays_within_its_interval(steps: list[float], flattens: bool, measured: set[int]) -> None:
    rises = sorted(steps, reverse=flattens)
    truth = {k: 1.0 + sum(rises[:k]) for k in DRAFTS}
    known = surface({k: truth[k] for k in (1, 7, *measured)}, width=0.0)
    for k in DRAFTS:
        found = known.cost(8, k)
        assert found.low <= truth[k] * (1 + 1e-9)
        assert found.high >= truth[k] * (1 - 1e-9)


def test_what_a_bend_leaves_open_lies_on_one_side_of_the_line() -> None:
    flattening = surface({1: 1.2, 3: 1.6, 7: 2.0})
    low, high = flattening.shapes(8, 5) or (0.0, 0.0)
    # beyond the bend c lies above the line, and below the steeper stretch carried on, which ends at the upper neighbour here
    assert (low, high) == pytest.approx((1.8, 2.0))
    # before it, a jump may be what looks like a bend: c on either of the two lines
    assert flattening.shapes(8, 2) == pytest.approx((1.3, 1.5))
    steepening = surface({1: 1.1, 3: 1.2, 7: 2.0})
    assert steepening.shapes(8, 2) == pytest.approx((1.1, 1.15))
    assert steepening.shapes(8, 5) == pytest.approx((1.3, 1.9))


def test_a_jump_that_was_found_is_no_bend_elsewhere() -> None:
    # as steep before the jump as after it, so nothing is left open on either side
    known = surface({1: 1.1, 3: 1.3, 4: 3.4, 7: 3.7})
    assert known.shapes(8, 2) == pytest.approx((1.2, 1.2))
    assert known.shapes(8, 5) == pytest.approx((3.5, 3.5))
    assert known.hidden_jump(8, 1, 3) == pytest.approx(0.0)
    # steeper after it too, as where a whole round costs more: still no curve that steepens throughout
    assert surface({1: 1.1, 3: 1.3, 4: 3.6, 7: 4.5}).shapes(8, 2) == pytest.approx((1.2, 1.2))
    # a second jump beyond the first is not taken for a line because the first is steeper
    assert surface({1: 1.1, 3: 1.3, 4: 3.4, 7: 4.7}).hidden_jump(8, 4, 7) == pytest.approx(1.0)


def test_refining_starts_with_ends_and_middle() -> None:
    assert first_points(DRAFTS) == (1, 3, 7)
    assert first_points((1, 2, 3, 4, 5)) == (1, 3, 5)
    assert first_points((3,)) == (3,)
    assert first_points((1, 5)) == (1, 5)


def test_a_line_needs_no_further_point() -> None:
    assert middles(surface({1: 1.1, 3: 1.3, 7: 1.7}), 8, DRAFTS, 0.05, 0.0) == set()
    assert middles(surface({1: 1.1, 7: 1.7}), 8, DRAFTS, 0.05, 0.5) == {3}


def test_a_jump_is_closed_in_on() -> None:
    truth = {k: 1.0 + 0.1 * k + (2.0 if k > 5 else 0.0) for k in DRAFTS}
    measured, rounds = {k: truth[k] for k in first_points(DRAFTS)}, 0
    while more := middles(surface(measured), 8, DRAFTS, 0.05, 0.02):
        assert len(more) == 1
        measured |= {k: truth[k] for k in more}
        rounds += 1
        assert rounds < 10
    assert {5, 6} <= set(measured)
    assert all(half_width(surface(measured).cost(8, k)) < 0.08 for k in DRAFTS)


def test_noise_that_looks_like_a_bend_asks_for_no_point() -> None:
    bent = surface({1: 1.1, 3: 1.36, 7: 1.7})
    assert middles(bent, 8, DRAFTS, 0.02, 0.06) == set()
    assert middles(bent, 8, DRAFTS, 0.02, 0.005) == {2}
    # what a stretch leaves open counts relative to c, and the most open one is asked for
    assert middles(surface({1: 1.1, 3: 1.3, 7: 3.7}), 8, DRAFTS, 0.02, 0.06) == {5}


def test_widths_are_relative() -> None:
    assert half_width(Cost(value=2.0, low=1.8, high=2.2)) == pytest.approx(0.1)
    assert math.isinf(half_width(Cost(value=2.0, low=1.0, high=math.inf)))


def test_a_jump_is_named_with_the_numbers_of_drafts_around_it_and_a_bend_is_not() -> None:
    (jump,) = surface({1: 1.1, 3: 1.3, 4: 3.4, 7: 3.7}).jumps()
    assert (jump.batch, jump.before, jump.after) == (8, 3, 4)
    assert surface({1: 1.1, 4: 1.6, 7: 1.8}).jumps() == ()
    assert surface({1: 1.1, 7: 3.7}).jumps() == ()
    # a rise that noise could make is none
    assert surface({1: 1.1, 4: 1.3, 5: 1.7, 7: 1.8}, width=0.2).jumps() == ()
