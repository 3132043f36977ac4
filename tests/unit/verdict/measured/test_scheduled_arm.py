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


def test_its_accept_length_changes_with_load_and_that_is_no_finding(result: Result) -> None:
    assert not [item.code for item in result.findings if item.code in ("accept-length-changes-with-load", "schedule-not-followed")]
    (told,) = (item.text for item in result.conclusions if item.text.startswith("scheduled has accept length"))
    assert told.endswith("at c=8; its schedule by running requests: 3 drafts at 1 to 4, none from 5 on.")
    (arm,) = (item for item in result.arms if item.name == "scheduled")
    assert arm.notes == "drafts by running requests: 3 drafts at 1 to 4, none from 5 on"
    reasons = [item.text for item in result.conclusions if item.text.startswith("scheduled was not predicted")]
    assert reasons == ["scheduled was not predicted at c=8: its schedule drafts nothing at this load."]
    assert not [text for text in result.what_would_change_it if "traffic repeats itself" in text]


def test_an_engine_that_drops_a_schedule_is_found_out(simulate: Simulate, make_arm: MakeArm) -> None:
    fixed = make_arm("scheduled", 3, joint=(0.6, 0.4, 0.2), cost_ratio={1: 1.2, 8: 2.6}, **NOISE)
    assert fixed.speculation is not None
    record = simulate([make_arm("plain", **NOISE), fixed], loads=(1, 8), launches=2)
    asked = replace(fixed, speculation=replace(fixed.speculation, schedule=((1, 4, 3), (5, 8, 0))))
    result = judge(replace(record, arms=[record.arms[0], asked]))
    (finding,) = (item for item in result.findings if item.code == "schedule-not-followed")
    assert finding.severity == "error"
    (odd, _) = finding.evidence
    assert odd.startswith("c=8: 3.00 drafts a step on average")
    assert odd.endswith("its schedule has 0 there")


def test_what_sglang_does_not_count_is_said_and_not_shown(simulate: Simulate, make_arm: MakeArm) -> None:
    """It takes every step for a round with the most drafts, whatever was drafted."""
    fixed = make_arm("scheduled", 3, joint=(0.6, 0.0, 0.0), **NOISE)
    assert fixed.speculation is not None
    record = simulate([make_arm("plain", **NOISE), fixed], loads=(2,), launches=2)
    asked = replace(fixed, engine="sglang", speculation=replace(fixed.speculation, schedule=((1, 1, 3), (2, 8, 1))))
    result = judge(replace(record, arms=[record.arms[0], asked]))
    (cell,) = (item for item in result.cells if item.arm == "scheduled")
    assert cell.acceptance is not None
    assert cell.acceptance.accept_length.estimate == pytest.approx(1.6, abs=0.05)
    assert (cell.acceptance.draft_acceptance, cell.acceptance.drafted_share, cell.acceptance.per_round_length) == (None, None, None)
    assert len(cell.acceptance.joint) == 1
    codes = {item.code for item in result.findings}
    assert "drafts-not-counted" in codes
    assert not codes & {"schedule-not-followed", "accept-length-at-floor"}


def test_resting_at_every_load_is_no_dead_drafter(simulate: Simulate, make_arm: MakeArm) -> None:
    dead = make_arm("scheduled", 3, joint=(0.0, 0.0, 0.0), **NOISE)
    assert dead.speculation is not None
    record = simulate([make_arm("plain", **NOISE), dead], loads=(8,), launches=2)
    asked = replace(dead, engine="sglang", speculation=replace(dead.speculation, schedule=((1, 4, 3), (5, 8, 0))))
    assert "accept-length-at-floor" in {item.code for item in judge(record).findings}
    assert "accept-length-at-floor" not in {item.code for item in judge(replace(record, arms=[record.arms[0], asked])).findings}


def test_the_few_drafts_of_an_arm_that_rests_on_sglang_are_told_without_a_total(simulate: Simulate, make_arm: MakeArm) -> None:
    some = make_arm("scheduled", 3, joint=(0.05, 0.0, 0.0), **NOISE)
    assert some.speculation is not None
    record = simulate([make_arm("plain", **NOISE), some], loads=(8,), launches=2)
    asked = replace(some, engine="sglang", speculation=replace(some.speculation, schedule=((1, 4, 3), (5, 8, 0))))
    result = judge(replace(record, arms=[record.arms[0], asked]))
    (told,) = (item for item in result.conclusions if item.text.startswith("scheduled has accept length"))
    assert " drafts accepted in " in told.evidence[0]
    assert " of 0 drafts" not in told.evidence[0]


def test_what_it_gains_where_it_often_rests_is_not_put_down_to_the_traffic(simulate: Simulate, make_arm: MakeArm) -> None:
    """Its batches lie on both sides of a step of its schedule, so it drafts at some of its steps only."""
    some = make_arm("some", 3, joint=(0.8, 0.6, 0.4), drafted_share=0.7, cost_ratio=1.1, **NOISE)
    assert some.speculation is not None
    record = simulate([make_arm("plain", **NOISE), some], loads=(8,), launches=4)
    asked = replace(some, speculation=replace(some.speculation, schedule=((1, 8, 3), (9, 64, 0))))
    for arms, told in ((record.arms, True), ([record.arms[0], asked], False)):
        result = judge(replace(record, arms=arms))
        assert comparison(result, "some", "c=8").outcome == "pays"
        assert bool([text for text in result.what_would_change_it if "traffic repeats itself" in text]) is told
