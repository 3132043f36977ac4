from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.costs.acceptance_curve import AcceptanceCurve

SHARES = st.lists(st.floats(0.05, 0.95), min_size=1, max_size=8)


def test_length_is_one_and_the_joint_shares() -> None:
    length = AcceptanceCurve((0.83, 0.60, 0.45)).length(3)
    assert length.value == pytest.approx(2.88)
    assert (length.low, length.high, length.is_extrapolated) == (length.value, length.value, False)


def test_conditional_is_the_ratio_of_joints() -> None:
    assert AcceptanceCurve((0.8, 0.4, 0.0, 0.0)).conditional == pytest.approx((0.8, 0.5, 0.0, 0.0))


def test_lengths_at_several_numbers_of_drafts_give_the_shares_back() -> None:
    curve = AcceptanceCurve.from_lengths({2: 2.36, 3: 2.79, 4: 3.08})
    assert curve.joint[2:] == pytest.approx((0.43, 0.29))
    assert sum(curve.joint[:2]) == pytest.approx(1.36)
    for drafts, length in ((2, 2.36), (3, 2.79), (4, 3.08)):
        assert curve.length(drafts).value == pytest.approx(length)


def test_positions_that_were_not_measured_widen_the_interval() -> None:
    # measured at seven drafts: 3.54
    length = AcceptanceCurve.from_lengths({2: 2.36, 3: 2.79, 4: 3.08}).length(7)
    assert length.is_extrapolated
    assert length.low < 3.54 < length.high
    assert length.low > 3.08


def test_sampling_error_is_that_of_independent_rounds() -> None:
    curve = AcceptanceCurve((0.5,), num_rounds=100)
    length = curve.length(1)
    assert length.high - length.value == pytest.approx(1.96 * math.sqrt(0.25 / 100))


def test_a_measured_interval_counts_before_that_of_independent_rounds() -> None:
    curve = AcceptanceCurve((0.6, 0.2), num_rounds=10_000, half_width=0.08)
    assert curve.length(2).high - curve.length(2).value == pytest.approx(0.08)
    assert curve.length(1).high - curve.length(1).value == pytest.approx(0.06)


def test_one_position_alone_reaches_what_it_is_said_to() -> None:
    curve = AcceptanceCurve((0.7, 0.4, 0.2))
    lever = next(lever for lever in curve.levers(3, 2.5) if lever.position == 1)
    assert lever.needed is not None
    raised = AcceptanceCurve.from_conditional((lever.needed, *curve.conditional[1:]))
    assert raised.length(3).value == pytest.approx(2.5)
    assert curve.levers(3, 2.5)[0] == lever  # the first position carries all others


def test_a_position_that_cannot_reach_it_says_so() -> None:
    assert all(lever.needed is None for lever in AcceptanceCurve((0.3, 0.1)).levers(2, 2.9))
    assert AcceptanceCurve((0.3, 0.1)).lifted_everywhere(2, 2.95) is None


@given(SHARES, st.floats(1.05, 4.0))
def test_lifting_everywhere_reaches_the_length(conditional: list[float], needed: float) -> None:
    curve = AcceptanceCurve.from_conditional(conditional)
    lift = curve.lifted_everywhere(len(conditional), needed)
    if lift is not None:
        raised = AcceptanceCurve.from_conditional([max(share, min(share + lift, 0.95)) for share in conditional])
        assert raised.length(len(conditional)).value >= needed - 1e-6


@given(SHARES, st.integers(0, 12))
def test_length_lies_between_its_bounds(conditional: list[float], drafts: int) -> None:
    length = AcceptanceCurve.from_conditional(conditional).length(drafts)
    assert 1.0 <= length.low <= length.value <= length.high <= drafts + 1 + 1e-9


@pytest.mark.parametrize(
    ("joint", "message"),
    [((), "no acceptance"), ((1.2,), "between 0 and 1"), ((0.5, 0.6), "cannot rise"), ((float("nan"),), "between 0 and 1")],
)
def test_impossible_shares_are_refused(joint: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AcceptanceCurve(joint)


def test_lengths_may_fall_by_noise() -> None:
    curve = AcceptanceCurve.from_lengths({5: 2.45, 7: 2.43})
    assert curve.length(7).value == pytest.approx(2.45)


@pytest.mark.parametrize("lengths", [{3: 0.9}, {3: 4.5}, {0: 1.0}, {2: 2.5, 4: 2.4}])
def test_impossible_lengths_are_refused(lengths: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="accept length"):
        AcceptanceCurve.from_lengths(lengths)


def test_lengths_that_cannot_all_be_true_are_refused() -> None:
    # the third draft would be accepted oftener than the two before it on average; the curve once said 2.38 for the 3.1 given
    with pytest.raises(ValueError, match="2 drafts: accept length 2 does not fit the others"):
        AcceptanceCurve.from_lengths({2: 2.0, 3: 3.1})
    with pytest.raises(ValueError, match="does not fit"):
        AcceptanceCurve.from_lengths({1: 1.5, 2: 2.4})


@pytest.mark.parametrize("lengths", [{2: 2.0, 3: 2.45}, {1: 1.6, 3: 2.6, 6: 3.4}, {1: 1.50, 2: 2.01}, {2: 3.0, 3: 4.0}])
def test_every_length_that_was_given_is_given_back(lengths: dict[int, float]) -> None:
    curve = AcceptanceCurve.from_lengths(lengths)
    for drafts, length in lengths.items():
        assert curve.length(drafts).value == pytest.approx(length, rel=0.02)


def test_what_was_filled_in_is_open_and_what_was_given_is_not() -> None:
    curve = AcceptanceCurve.from_lengths({3: 2.2})
    assert curve.length(3).low == curve.length(3).high == pytest.approx(2.2)
    one = curve.length(1)
    # half of the way to shares that do not fall (1.4), and to a first draft that is always accepted (2.0)
    assert one.low == pytest.approx((one.value + 1.4) / 2)
    assert one.high == pytest.approx((one.value + 2.0) / 2)
    # published: with 7 drafts 3.54, with 2 2.36; every position losing alike says 2.19
    published = AcceptanceCurve.from_lengths({7: 3.54}).length(2)
    assert published.value < 2.36 < published.high
    # shares by position leave nothing open
    assert AcceptanceCurve((0.6, 0.4, 0.2)).length(1).low == AcceptanceCurve((0.6, 0.4, 0.2)).length(1).high


@given(st.dictionaries(st.integers(1, 10), st.floats(0.05, 0.95), min_size=1, max_size=4), st.integers(0, 12))
def test_bounds_hold_the_value_whatever_was_given(shares: dict[int, float], drafts: int) -> None:
    lengths = {k: 1.0 + sum(min(shares.values()) ** i for i in range(1, k + 1)) for k in shares}
    length = AcceptanceCurve.from_lengths(lengths).length(drafts)
    assert 1.0 <= length.low <= length.value + 1e-9 <= length.high + 2e-9 <= drafts + 1 + 1e-6
