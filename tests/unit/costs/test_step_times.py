"""Cliffs are found, never smoothed over; the step-cost curve of a large mixture of experts on four GPUs is worked through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.payoff import payoff
from breakeven.costs.step_times import StepTimes
from breakeven.costs.stepped_surface import SteppedSurface
from breakeven.costs.surface import UnknownCost

# published forward times in ms, read off a figure: a step by its tokens, three drafts by requests
VERIFY = {
    1: 5.11, 4: 5.12, 8: 5.35, 16: 5.59, 32: 6.26, 64: 7.90, 128: 9.43, 256: 11.3, 512: 15.03, 1024: 20.63, 1536: 104.5,
    4096: 133.5, 16384: 234.9,
}  # fmt: skip
DRAFT = {1: 0.883, 8: 1.071, 32: 1.606, 64: 2.274, 128: 3.143, 256: 5.38}


@pytest.fixture
def surface() -> SteppedSurface:
    return SteppedSurface(verify=StepTimes.of(VERIFY), draft=StepTimes.of(DRAFT), draft_for=3)


@pytest.mark.parametrize(("batch", "cost"), [(1, 1.17), (8, 1.37), (32, 1.76), (64, 1.72), (128, 1.93), (256, 2.30)])
def test_the_cost_of_three_drafts(surface: SteppedSurface, batch: int, cost: float) -> None:
    assert surface.cost(batch, 3).value == pytest.approx(cost, abs=0.006)


def test_the_only_cliff_is_where_graphs_end() -> None:
    (cliff,) = StepTimes.of(VERIFY).cliffs
    assert (cliff.below, cliff.above) == (1024, 1536)
    assert cliff.factor == pytest.approx(104.5 / 20.63)


def test_a_step_less_than_proportional_is_a_cliff_too() -> None:
    # graphs end between 512 and 1024 tokens: 1.9 times the time for twice the tokens, and a gentle slope on either side
    times = StepTimes.of({128: 9.4, 256: 11.3, 512: 15.0, 1024: 28.9, 2048: 36.0})
    assert [(cliff.below, cliff.above) for cliff in times.cliffs] == [(512, 1024)]
    assert times.at(700).is_beside_cliff


def test_where_work_outgrows_reading_there_is_no_cliff() -> None:
    # flat while weights are read, proportional beyond
    assert StepTimes.of({tokens: max(10.0, tokens / 16) for tokens in (1, 16, 64, 128, 256, 512, 1024)}).cliffs == ()
    # experts are read one after the other, until all are
    assert StepTimes.of({1: 8.5, 2: 13.5, 3: 15.6, 5: 20.7, 8: 28.1, 32: 52.0, 64: 60.0, 256: 64.0}).cliffs == ()


def test_past_the_cliff_is_a_disaster_with_its_remedy(surface: SteppedSurface) -> None:
    cost = surface.cost(256, 7)
    assert 9.5 < cost.low < cost.high < 12.0
    assert any("raise the capture size to 2048 tokens" in doubt and "draft at most 3" in doubt for doubt in cost.doubts)


def test_an_accept_length_of_two_and_a_half_pays_everywhere_with_three_drafts(surface: SteppedSurface) -> None:
    choices = payoff(surface, AcceptanceCurve((0.7, 0.5, 0.3)), DRAFT, (3, 7), threshold=0.03)
    assert [choice.best.num_drafted for choice in choices if choice.best is not None] == [3] * len(DRAFT)
    assert all(choice.rows[0].outcome == "pays" for choice in choices)
    assert choices[-1].rows[0].speedup == pytest.approx(1.09, abs=0.005)
    assert choices[-1].rows[1].outcome == "slower"


def test_beside_a_cliff_both_sides_bound_and_the_dear_one_is_the_value() -> None:
    between = StepTimes.of(VERIFY).at(1280)
    assert between.is_beside_cliff
    assert between.low == pytest.approx(20.63 + (20.63 - 15.03) / 512 * 256)
    assert between.value > 85.0
    assert between.high == 104.5


def test_below_the_cliff_nothing_of_it_is_seen() -> None:
    time = StepTimes.of(VERIFY).at(768)
    assert time.cliff is None
    assert 15.03 <= time.low <= time.value <= time.high <= 20.63


def test_far_outside_is_unknown(surface: SteppedSurface) -> None:
    with pytest.raises(UnknownCost, match="measure further"):
        surface.cost(600, 3)


@pytest.mark.parametrize("times", [{}, {0: 1.0}, {1: 0.0}, {1: float("nan")}, {4: -1.0}])
def test_impossible_times_are_refused(times: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        StepTimes.of(times)


@given(st.dictionaries(st.integers(1, 4096), st.floats(1e-3, 10.0), min_size=1, max_size=12), st.integers(1, 8192))
def test_bounds_hold_the_value(times: dict[int, float], tokens: int) -> None:
    known = StepTimes.of(times)
    if tokens <= 2 * known.most_tokens:
        time = known.at(tokens)
        assert 0.0 < time.low <= time.value * (1 + 1e-9)
        assert time.value <= time.high * (1 + 1e-9)


def test_a_round_faster_than_a_plain_step_is_refused() -> None:
    def surface(plain: float) -> SteppedSurface:
        return SteppedSurface(
            verify=StepTimes.of({1: plain, 4: 8.4, 8: 9.0}),
            draft=StepTimes.of({1: 0.9, 2: 1.0}),
            draft_for=3,
        )

    with pytest.raises(UnknownCost, match=r"3 drafts faster than a plain step \(c at most 0\.7\d\), which is impossible"):
        surface(12.0).cost(1, 3)
    assert surface(8.0).cost(1, 3).value == pytest.approx(9.3 / 8.0)


def test_times_that_fall_are_doubted_and_both_are_held() -> None:
    surface = SteppedSurface(
        verify=StepTimes.of({1: 9.5e-3, 8: 10e-3, 32: 8e-3, 64: 9e-3}), draft=StepTimes.of({1: 1e-3, 8: 2.5e-3}), draft_for=3
    )
    cost = surface.cost(8, 3)
    assert cost.value == pytest.approx(1.05)
    assert cost.high == pytest.approx(1.25)
    assert any("a step of 8 tokens took longer (10 ms) than one of 32 (8 ms)" in doubt for doubt in cost.doubts)
    # what timing leaves open is no fall
    level = SteppedSurface(verify=StepTimes.of({8: 10e-3, 32: 9.9e-3}), draft=StepTimes.of({8: 2.5e-3}), draft_for=3)
    assert not level.cost(8, 3).doubts


def test_what_is_missing_is_named_by_what_it_is() -> None:
    surface = SteppedSurface(verify=StepTimes.of({1: 10e-3, 512: 20e-3}), draft=StepTimes.of({1: 1e-3, 8: 1e-3}), draft_for=3)
    with pytest.raises(UnknownCost, match="draft times are known from 1 to 8 requests"):
        surface.cost(32, 3)
    with pytest.raises(UnknownCost, match="step times are known from 1 to 512 tokens"):
        surface.cost(8, 200)
