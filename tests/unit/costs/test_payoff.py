"""From accept length to speedup: intervals, the best number of drafts, and what a better drafter must reach."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from breakeven.costs.acceptance_curve import AcceptanceCurve, Length
from breakeven.costs.payoff import expected_speedup, outcome_of, payoff
from breakeven.costs.surface import Cost, UnknownCost


class Known:
    kind = "measured"

    def __init__(self, costs: Mapping[tuple[int, int], Cost]) -> None:
        self.costs = costs

    def cost(self, batch: int, num_drafted: int) -> Cost:
        if (batch, num_drafted) not in self.costs:
            raise UnknownCost("not measured there")
        return self.costs[batch, num_drafted]


def exactly(value: float) -> Cost:
    return Cost(value=value, low=value, high=value)


# one baseline cost ratio of 1.95, and the same printed accept rate of 0.42 under an old and a new release: lengths 1.68 and 2.26
@pytest.mark.parametrize(("accept_length", "speedup", "outcome"), [(1.68, 0.86, "slower"), (2.26, 1.16, "pays")])
def test_the_same_printed_rate_gives_two_verdicts(accept_length: float, speedup: float, outcome: str) -> None:
    length = Length(value=accept_length, low=accept_length, high=accept_length)
    expected = expected_speedup(length, exactly(1.95), batch=8, num_drafted=3, threshold=0.03)
    assert expected.speedup == pytest.approx(speedup, abs=0.005)
    assert expected.outcome == outcome


def test_relative_errors_add_in_quadrature() -> None:
    expected = expected_speedup(
        Length(value=2.0, low=2.0 / 1.3, high=2.0 * 1.3),
        Cost(value=1.0, low=1.0 / 1.4, high=1.4),
        batch=1,
        num_drafted=3,
        threshold=0.03,
    )
    assert math.log(expected.high / 2.0) == pytest.approx(math.hypot(math.log(1.3), math.log(1.4)))


def test_the_best_number_of_drafts_differs_by_batch_and_plain_is_a_choice() -> None:
    surface = Known({(1, 1): exactly(1.1), (1, 3): exactly(1.2), (8, 1): exactly(1.2), (8, 3): exactly(2.0), (64, 1): exactly(2.5)})
    small, middle, large = payoff(surface, AcceptanceCurve((0.7, 0.5, 0.3)), (1, 8, 64), (1, 3), threshold=0.03)
    assert small.best is not None
    assert (small.best.num_drafted, small.level) == (3, ())
    assert middle.best is not None
    assert middle.best.num_drafted == 1
    assert large.best is None
    assert [number for number, _ in large.unknown] == [3]


def test_what_a_better_drafter_must_reach() -> None:
    (choice,) = payoff(Known({(1, 2): exactly(2.0)}), AcceptanceCurve((0.6, 0.3)), (1,), (2,), threshold=0.0)
    assert choice.advice is not None
    assert choice.advice.needed == pytest.approx(2.0)
    assert choice.advice.length == pytest.approx(1.9)
    lever = choice.advice.levers[0]
    # 1 + c1 (1 + 0.5) = 2
    assert (lever.position, lever.needed) == (1, pytest.approx(2 / 3))


def test_what_is_needed_is_asked_of_every_draft_of_the_round() -> None:
    """Two positions were measured and three drafts are wanted: 0.95 at each gives 3.71, so 3.2 is not out of reach."""
    (choice,) = payoff(Known({(1, 3): exactly(3.2)}), AcceptanceCurve((0.6, 0.4)), (1,), (3,), threshold=0.0)
    assert choice.advice is not None
    assert choice.advice.everywhere is not None
    chain = [min(share + choice.advice.everywhere, 0.95) for share in (0.6, 2 / 3, 2 / 3)]
    assert 1 + sum(math.prod(chain[:end]) for end in (1, 2, 3)) == pytest.approx(3.2)
    assert [lever.position for lever in choice.advice.levers] == [1, 2, 3]


def test_no_advice_where_it_surely_pays() -> None:
    (choice,) = payoff(Known({(1, 2): exactly(1.2)}), AcceptanceCurve((0.6, 0.3)), (1,), (2,), threshold=0.03)
    assert choice.advice is None


OUTCOMES = [
    (1.04, 1.2, "pays"),
    (0.8, 0.96, "slower"),
    (0.98, 1.02, "no useful difference"),
    (0.9, 1.2, "undecided"),
    (math.nan, math.nan, "undecided"),
]


@pytest.mark.parametrize(("low", "high", "outcome"), OUTCOMES)
def test_outcomes(low: float, high: float, outcome: str) -> None:
    assert outcome_of(low, high, 0.03) == outcome


def test_a_cost_must_lie_in_its_interval() -> None:
    with pytest.raises(ValueError, match="expected"):
        Cost(value=1.0, low=1.1, high=1.2)


def test_advice_takes_drafts_that_can_reach_it_before_those_that_cannot() -> None:
    # one draft looks nearer, but asks for more than two tokens a round
    surface = Known({(1, 1): Cost(value=1.0, low=0.5, high=2.1), (1, 3): Cost(value=2.2, low=1.5, high=3.5)})
    (choice,) = payoff(surface, AcceptanceCurve((0.7, 0.5, 0.3)), (1,), (1, 3), threshold=0.03)
    assert choice.advice is not None
    assert choice.advice.num_drafted == 3
    (alone,) = payoff(surface, AcceptanceCurve((0.7, 0.5, 0.3)), (1,), (1,), threshold=0.03)
    assert alone.advice is not None
    assert alone.advice.needed > 2
