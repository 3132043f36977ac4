from __future__ import annotations

import pytest

from breakeven.costs.neighbours import Neighbour, cost_from, fitting


def row(accept_length: float, speedup: float, plain: float | None = None) -> Neighbour:
    return Neighbour(name="", accept_length=accept_length, speedup=speedup, plain_speed=plain)


def test_one_row_gives_its_cost() -> None:
    assert cost_from([row(2.4, 1.5)], 3.0) == pytest.approx(1.6)


def test_two_rows_give_the_middle_and_no_slope() -> None:
    assert cost_from([row(2.0, 2.0), row(4.0, 2.0)], 8.0) == pytest.approx(2.0**0.5)


def test_with_three_rows_cost_may_rise_with_the_accept_length_but_less_than_they_say() -> None:
    # log c = 0.5 log AL exactly
    rows = [row(length, length**0.5) for length in (1.5, 2.0, 3.0, 4.0)]
    beyond = cost_from(rows, 5.0)
    assert cost_from(rows, 2.4) < beyond < 5.0**0.5
    # in their midst the line passes where they lie
    assert cost_from(rows, 6.0**0.5) == pytest.approx(6.0**0.25, rel=0.01)


def test_cost_never_falls_with_the_accept_length() -> None:
    rows = [row(2.0, 1.0), row(3.0, 2.0), row(4.0, 4.0)]
    assert cost_from(rows, 2.0) == pytest.approx(cost_from(rows, 4.0))


def test_rows_of_another_setting_under_the_same_name_are_left_out() -> None:
    # four rows measured with another limit, at a quarter of the plain speed
    rows = [row(2.8, 1.57, 180.0), row(2.1, 1.31, 185.0), row(2.2, 1.33, 181.0), row(2.8, 2.42, 31.0), row(1.8, 1.54, 31.5)]
    assert {near.plain_speed for near in fitting(rows, 170.0)} == {180.0, 185.0, 181.0}
    assert fitting(rows, 1000.0) == tuple(rows)
    assert fitting(rows, None) == tuple(rows)


def test_nothing_known_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        cost_from([], 2.0)
