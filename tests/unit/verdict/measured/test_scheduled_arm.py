"""A schedule measured as an arm: judged like any other, compared with the c of what it drafts at each load, evidence of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from breakeven.engines.base import Arm
from breakeven.experiment.record import RunRecord
from breakeven.report.lookup import Lookup
from breakeven.report.text import outcome
from breakeven.verdict.judge import judge
from breakeven.verdict.result import Comparison, Result

MakeArm = Callable[..., Arm]
Simulate = Callable[..., RunRecord]
NOISE: dict[str, Any] = {"launch_sd": 0.005, "prefill_s": 0.01}


@pytest.fixture
def result(simulate: Simulate, make_arm: MakeArm) -> Result:
    """Three drafts at one request, where a round costs 1.2 steps; none at eight, where carrying the drafter costs 1.1."""
    joint = (0.6, 0.4, 0.2)
    scheduled = make_arm("scheduled", 3, joint=joint, cost_ratio={1: 1.2, 8: 1.1}, **NOISE)
    assert scheduled.speculation is not None
    arms = [
        make_arm("plain", **NOISE),
        make_arm("forced", 3, forced=2.0, cost_ratio={1: 1.2, 8: 2.6}, **NOISE),
        make_arm("fixed", 3, joint=joint, cost_ratio={1: 1.2, 8: 2.6}, **NOISE),
        replace(scheduled, speculation=replace(scheduled.speculation, schedule=((1, 4, 3), (5, 8, 0)))),
    ]
    return judge(simulate(arms, loads=(1, 8), launches=4))


def comparison(result: Result, arm: str, load: str) -> Comparison:
    (found,) = (item for item in result.comparisons if (item.arm, item.load) == (arm, load))
    return found


def test_it_drafts_where_it_pays_and_rests_where_it_does_not(result: Result) -> None:
    assert comparison(result, "scheduled", "c=1").outcome == "pays"
    assert comparison(result, "fixed", "c=8").outcome == "slower"
    rests = comparison(result, "scheduled", "c=8")
    assert rests.outcome == "slower"
    assert rests.ratio.estimate == pytest.approx(1 / 1.1, rel=0.03)


def test_its_prediction_is_that_of_what_it_drafts_there(result: Result) -> None:
    drafting = comparison(result, "scheduled", "c=1")
    assert drafting.predicted is not None
    assert drafting.predicted.estimate == pytest.approx(2.2 / 1.2, rel=0.05)
    assert comparison(result, "scheduled", "c=8").gap_explained == "its schedule drafts nothing at this load"


def test_it_is_no_evidence_of_what_rounds_cost(result: Result) -> None:
    (point,) = (item for item in result.break_even if item.load == "c=8")
    assert point.cost_ratio.estimate == pytest.approx(2.6, rel=0.03)
    lookup = Lookup(result)
    assert lookup.break_even("scheduled", "c=1") == lookup.break_even("fixed", "c=1")
    assert lookup.break_even("scheduled", "c=8") is None
    assert [item.load for item in result.standings if item.arm == "scheduled"] == ["c=1"]


def test_an_idle_arm_is_a_probe_everywhere(simulate: Simulate, make_arm: MakeArm) -> None:
    idle = make_arm("idle", 3, cost_ratio=1.05, **NOISE)
    assert idle.speculation is not None
    idle = replace(idle, speculation=replace(idle.speculation, schedule=((1, 8, 0),)))
    result = judge(simulate([make_arm("plain", **NOISE), idle], loads=(4,), launches=4))
    assert outcome(Lookup(result), "idle", "c=4") == "probe"
    (told,) = (item.text for item in result.conclusions if "loaded and no drafts" in item.text)
    assert "1.05" in told or "1.04" in told or "1.06" in told
    assert not result.break_even
    assert not [item for item in result.findings if item.severity == "error"]
