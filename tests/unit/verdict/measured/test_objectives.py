"""The same trials by throughput, by the speed of one request and by goodput: known truths on which they disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from breakeven.engines.base import Arm
from breakeven.experiment.objective import Objective
from breakeven.experiment.record import RunRecord
from breakeven.experiment.stopping import open_comparisons
from breakeven.verdict.judge import judge
from breakeven.verdict.result import Comparison, Result

MakeArm = Callable[..., Arm]
Simulate = Callable[..., RunRecord]
NOISE: dict[str, Any] = {"launch_sd": 0.005, "step_s": 0.02}


def the(result: Result, load: str) -> Comparison:
    (found,) = (item for item in result.comparisons if (item.arm, item.load) == ("eagle", load))
    return found


@pytest.fixture
def record(simulate: Simulate, make_arm: MakeArm) -> RunRecord:
    """A drafter that decodes 2.0 / 1.4 times as fast, after a prefill of 1.3 s instead of 0.1 s: slower over whole answers.

    Whole answers of 64 tokens take 0.1 + 63 x 0.02 = 1.36 s plain and 1.3 + 63 x 0.014 = 2.18 s with it.
    """
    arms = [
        make_arm("plain", cap=64, prefill_s=0.1, **NOISE),
        make_arm("eagle", 3, cap=64, prefill_s=1.3, joint=(0.5, 0.3, 0.2), cost_ratio=1.4, **NOISE),
    ]
    return simulate(arms, loads=(1, 64), launches=4, repeats=2, window_s=30.0)


def judged(record: RunRecord, name: str, **limits: float) -> Result:
    return judge(replace(record, objective=Objective(name=name, **limits)))  # type: ignore[arg-type]


def test_throughput_says_slower_where_the_speed_of_a_request_pays(record: RunRecord) -> None:
    result = judge(record)
    assert the(result, "c=64").outcome == "slower"
    assert the(result, "c=64").ratio.estimate == pytest.approx(1.36 / 2.18, rel=0.04)
    (other,) = the(result, "c=64").by_objective
    assert (other.objective, other.outcome) == ("request speed", "pays")
    assert other.ratio.estimate == pytest.approx(2.0 / 1.4, rel=0.04)
    (told,) = (item.text for item in result.conclusions if "decided otherwise" in item.text)
    assert told.startswith("Judged by request speed, it would be decided otherwise: eagle pays at c=1")


def test_the_plan_chooses_what_decides_and_the_headline_says_by_what(record: RunRecord) -> None:
    result = judged(record, "request-speed")
    assert the(result, "c=64").outcome == "pays"
    assert "Speculation pays at c=1 and c=64" in result.headline
    assert result.headline.endswith("Judged by request speed.")
    (other,) = the(result, "c=64").by_objective
    assert (other.objective, other.outcome) == ("throughput", "slower")
    assert "Run eagle" in result.decision


def test_goodput_with_limits_that_all_keep_is_throughput(record: RunRecord) -> None:
    loose = judged(record, "goodput", ttft_s=100.0, tpot_s=10.0)
    for load in ("c=1", "c=64"):
        assert the(loose, load).ratio == the(judge(record), load).ratio
    assert loose.objective == "goodput (first token within 100 s and 10 s a token at most)"


def test_zero_goodput_gives_no_ratio_and_is_said(record: RunRecord) -> None:
    for limits, late in (({"ttft_s": 0.5}, "eagle"), ({"tpot_s": 0.017}, "plain")):
        result = judged(record, "goodput", **limits)
        assert not [item for item in result.comparisons if item.arm == "eagle"]
        assert "pays" not in result.headline
        assert result.headline.startswith("Undecided")
        found = [item for item in result.findings if item.code == "goodput-zero"]
        assert len(found) == 2
        assert f"{late} in 8 of 8 windows" in found[0].title
        assert f"{late}: 0 % of its tokens within the limits" in found[0].evidence
        assert result.decision.startswith("Keep plain")


def test_both_arms_at_zero_are_said_too(record: RunRecord) -> None:
    result = judged(record, "goodput", tpot_s=0.001)
    assert not result.comparisons
    assert "plain in 8 of 8 windows and eagle in 8 of 8 windows" in next(
        item.title for item in result.findings if item.code == "goodput-zero"
    )


def test_goodput_of_a_queue_is_judged_by_who_keeps_the_limit(simulate: Simulate, make_arm: MakeArm) -> None:
    """Open loop, near what plain can serve: its requests queue, the faster arm's hardly do, at the same throughput."""
    arms = [
        make_arm("plain", cap=2, prefill_s=0.1, **NOISE),
        make_arm("eagle", 3, cap=2, prefill_s=0.1, joint=(0.8, 0.6, 0.4), cost_ratio=1.2, **NOISE),
    ]
    record = simulate(arms, loads=(), rates=(1.3,), launches=6, repeats=3, window_s=120.0)
    result = judged(record, "goodput", ttft_s=0.3)
    comparison = the(result, "1.3/s")
    assert comparison.outcome == "pays"
    assert comparison.ratio.estimate > 2
    assert not [item for item in result.findings if item.code == "goodput-zero"]


def test_more_launches_are_asked_for_by_the_objective(simulate: Simulate, make_arm: MakeArm) -> None:
    """Throughput is level (no useful difference, or undecided); decode speed clearly pays, so nothing stays open."""
    arms = [
        make_arm("plain", cap=8, prefill_s=0.1, launch_sd=0.02, step_s=0.02),
        make_arm("eagle", 3, cap=8, prefill_s=0.52, joint=(0.5, 0.3, 0.2), cost_ratio=1.33, launch_sd=0.02, step_s=0.02),
    ]
    record = simulate(arms, launches=3, repeats=1, min_launches=3, max_launches=9, window_s=30.0)
    assert open_comparisons(record) == [("eagle", "c=1")]
    assert open_comparisons(replace(record, objective=Objective(name="request-speed"))) == []


def test_goodput_without_limits_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a limit"):
        Objective(name="goodput")
