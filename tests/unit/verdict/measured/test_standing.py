"""What the picture of the surface shows of a simulated run with known truth: lines, cliffs, drafters above and below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from breakeven.engines.base import Arm
from breakeven.experiment.record import RunRecord
from breakeven.verdict.judge import judge
from breakeven.verdict.predicted.measured_run import predict_from_run
from breakeven.verdict.result import Result, Standing

MakeArm = Callable[..., Arm]
Simulate = Callable[..., RunRecord]
NOISE: dict[str, Any] = {"launch_sd": 0.005}


def straight(k: int) -> float:
    return 1.0 + 0.2 * k


@pytest.fixture
def result(simulate: Simulate, make_arm: MakeArm) -> Result:
    """c = 1 + 0.2 k at one running request; at 8 the same until 4 drafts no longer fit a recorded graph."""
    arms = [make_arm("plain", **NOISE)]
    for k in (1, 3, 4, 5):
        costs = {1: straight(k), 8: straight(k) * (3.0 if k >= 4 else 1.0)}
        arms.append(make_arm(f"forced-{k}", k, forced=1.5, cost_ratio=costs, **NOISE))
    costs_2 = {1: straight(2), 8: straight(2)}
    arms += [
        make_arm("good", 2, joint=(0.8, 0.6), cost_ratio=costs_2, drafted_share=0.99, **NOISE),
        make_arm("weak", 3, joint=(0.2, 0.05, 0.0), cost_ratio={1: straight(3), 8: straight(3)}, **NOISE),
        make_arm("deep", 9, joint=(0.5,) * 9, cost_ratio={1: 3.0, 8: 3.0}, drafted_share=0.5, **NOISE),
    ]
    return judge(simulate(arms, loads=(1, 8), launches=4))


def standing(result: Result, arm: str, load: str) -> Standing:
    (found,) = (item for item in result.standings if (item.arm, item.load) == (arm, load))
    return found


def test_drafters_stand_above_and_below_where_the_truth_puts_them(result: Result) -> None:
    for load in ("c=1", "c=8"):
        assert standing(result, "good", load).side == "above"
        assert standing(result, "weak", load).side == "below"
        assert "break-even 1.4" in standing(result, "good", load).why


def test_a_drafter_beyond_what_was_measured_is_not_judged(result: Result) -> None:
    item = standing(result, "deep", "c=1")
    assert item.side == "cannot be told"
    assert item.break_even is None
    assert "lie beyond those measured" in item.why


def test_an_arm_that_drafts_at_some_steps_only_is_not_judged(simulate: Simulate, make_arm: MakeArm) -> None:
    arms = [
        make_arm("plain", **NOISE),
        make_arm("forced", 3, forced=2.0, method="ngram", cost_ratio=1.2, **NOISE),
        make_arm("lookup", 3, method="ngram", joint=(0.9, 0.9, 0.9), drafted_share=0.5, cost_ratio=1.2, **NOISE),
    ]
    item = standing(judge(simulate(arms)), "lookup", "c=1")
    assert item.side == "cannot be told"
    assert "drafts at 50 % of steps" in item.why


def test_numbers_in_between_are_read_off_lines_and_say_so(simulate: Simulate, make_arm: MakeArm) -> None:
    arms = [make_arm("plain", **NOISE)]
    arms += [make_arm(f"forced-{k}", k, forced=1.5, cost_ratio=straight(k), **NOISE) for k in (1, 3, 5)]
    arms.append(make_arm("four", 4, joint=(0.9, 0.9, 0.9, 0.9), cost_ratio=straight(4), drafted_share=0.5, **NOISE))
    result = judge(simulate(arms))
    between = {point.num_draft_tokens: point for point in result.break_even_between}
    assert set(between) == {2, 4}
    assert between[2].basis == "read off the line between 1 and 3 drafts"
    for k, point in between.items():
        assert point.cost_ratio.estimate == pytest.approx(straight(k), rel=0.03)
        assert point.cost_ratio.low is not None
        assert point.cost_ratio.high is not None
        assert point.cost_ratio.low <= straight(k) <= point.cost_ratio.high
    assert standing(result, "four", "c=1").read_off
    assert not result.cliffs


@pytest.mark.parametrize(("measured", "hides"), [((1, 3, 7), True), ((1, 4, 7), False), ((1, 3), False), ((1, 3, 5, 7), False)])
def test_a_staircase_that_doubles_would_look_like_a_line_and_that_is_said(
    simulate: Simulate, make_arm: MakeArm, measured: tuple[int, ...], hides: bool
) -> None:
    arms = [make_arm("plain", **NOISE)]
    arms += [make_arm(f"forced-{k}", k, forced=1.5, cost_ratio=straight(k), **NOISE) for k in measured]
    record = simulate(arms)
    result = judge(record)
    assert ("padding-would-not-show" in {finding.code for finding in result.findings}) == hides
    assert any("powers of two" in point.basis for point in result.break_even_between) == hides
    assert any("powers of two" in note for note in predict_from_run(record, None, (), (), threshold=0.03).notes) == hides


def test_a_cliff_is_named_with_what_to_do(result: Result) -> None:
    (cliff,) = result.cliffs
    assert (cliff.load, cliff.drafts_before, cliff.drafts_after) == ("c=8", 3, 4)
    assert cliff.cost_before == pytest.approx(straight(3), rel=0.05)
    assert cliff.cost_after == pytest.approx(3 * straight(4), rel=0.05)
    assert "32 and 40 tokens a step" in cliff.text


def test_open_loops_have_no_surface(simulate: Simulate, make_arm: MakeArm) -> None:
    arms = [make_arm("plain", **NOISE), make_arm("forced", 3, forced=2.0, cost_ratio=1.3, **NOISE)]
    result = judge(simulate(arms, loads=(), rates=(0.5,)))
    assert not result.break_even_between
    assert not result.standings
