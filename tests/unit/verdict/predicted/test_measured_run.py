"""Predictions from a measured run: what was measured, what lies between, the schedule, and its spelling."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.engines.base import Arm
from breakeven.errors import UsageError
from breakeven.experiment.live import LiveArm, SimulatedArm
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.runner import carry_out
from breakeven.experiment.stopping import still_wanted
from breakeven.experiment.store import RunStore
from breakeven.report.prediction import render_prediction
from breakeven.verdict.judge import judge
from breakeven.verdict.predicted.measured_run import predict_from_run
from breakeven.verdict.predicted.spelled_schedule import spell_schedule

DRAFTS = (1, 2, 3, 4, 5)
HEAD = AcceptanceCurve((0.7, 0.5, 0.36, 0.26, 0.19))


def truth(batch: int, k: int) -> float:
    return 1.0 + 0.1 * k + 0.004 * batch * k + (3.0 if batch * (k + 1) > 256 else 0.0)


def plan(**changes: Any) -> Plan:
    return Plan.model_validate(
        {
            "name": "measured",
            "engine": "fake",
            "launches": {"min": 3, "max": 4},
            "max_running_requests": 64,
            "workload": {"max_tokens": 64, "fixed_length": True},
            "load": [{"concurrency": 1}, {"concurrency": 64}],
            "arms": {"plain": None},
            "curve": {
                "num_draft_tokens": list(DRAFTS),
                "simulation": {k: {"cost_ratio": {b: truth(b, k) for b in (1, 64)}, "launch_sd": 0.005} for k in DRAFTS},
            },
        }
        | changes
    )


def measured(chosen: Plan, folder: Path) -> RunRecord:
    def make_live(arm: Arm) -> LiveArm:
        return SimulatedArm(arm, seed=chosen.seed, window_s=chosen.window_s)

    with RunStore(folder, chosen) as store:
        store.begin({})
        carry_out(chosen, store, make_live, partial(still_wanted, curve=chosen.curve), lambda _: None, side_by_side=False)
        return store.record()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return measured(plan(), tmp_path_factory.mktemp("run") / "run")


def test_every_number_of_drafts_is_predicted_and_the_cliff_is_named(record: RunRecord) -> None:
    result = predict_from_run(record, HEAD, (), (), threshold=0.03)
    assert [batch.batch for batch in result.batches] == [1, 64]
    for batch in result.batches:
        assert [point.num_draft_tokens for point in batch.points] == list(DRAFTS)
        for point in batch.points:
            expected = truth(batch.batch, point.num_draft_tokens)
            assert point.cost.low * 0.97 <= expected <= point.cost.high * 1.03
    assert any("Cliff at 64 running requests" in note and "between 3 and 4 drafts" in note for note in result.notes)


def test_steps_and_rounds_have_their_times(record: RunRecord) -> None:
    for batch in predict_from_run(record, None, (), (3,), threshold=0.03).batches:
        declared = 0.02  # the fake engine's plain step
        assert batch.plain_s == pytest.approx(declared, rel=0.1)
        assert batch.points[0].round_s == pytest.approx(declared * truth(batch.batch, 3), rel=0.15)


def test_the_schedule_drafts_less_at_the_large_batch_and_nothing_beyond(record: RunRecord) -> None:
    schedule = predict_from_run(record, HEAD, (), (), threshold=0.03).schedule
    assert schedule is not None
    small, large, beyond = schedule.by_batch
    assert small.num_draft_tokens > large.num_draft_tokens > 0
    assert (beyond.first, beyond.last, beyond.num_draft_tokens) == (65, None, 0)


def test_what_the_figures_rest_on_is_said(record: RunRecord) -> None:
    """A simulated run, and acceptance whose own error is in no interval; counted rounds bring theirs along."""
    told = predict_from_run(record, HEAD, (), (), threshold=0.03).notes
    assert sum("The run is simulated" in note for note in told) == 1
    assert sum("acceptance is taken as given" in note for note in told) == 1
    counted = predict_from_run(record, AcceptanceCurve(HEAD.joint, num_rounds=500), (), (), threshold=0.03).notes
    assert not any("taken as given" in note for note in (*counted, *predict_from_run(record, None, (), (), threshold=0.03).notes))
    real = replace(record, arms=tuple(replace(arm, engine="vllm") for arm in record.arms))
    assert not any("simulated" in note for note in predict_from_run(real, HEAD, (), (), threshold=0.03).notes)


def test_a_schedule_that_never_drafts_is_not_weighed_against_itself(record: RunRecord) -> None:
    """ "plain decoding loses 0 % against it at worst" said nothing of a schedule that is plain decoding."""

    def shown(joint: tuple[float, ...]) -> str:
        out = io.StringIO()
        result = predict_from_run(record, AcceptanceCurve(joint), (), (), threshold=0.03)
        render_prediction(result, Console(file=out, width=200, color_system=None))
        return out.getvalue()

    assert "One fixed choice: plain decoding, as the schedule has it everywhere." in shown((0.02,))
    drafting = shown((0.7, 0.5, 0.36, 0.26, 0.19))
    assert "against it at worst by value" in drafting
    assert "1 running requests" not in drafting
    assert "1 running request" in drafting


@pytest.fixture(scope="module")
def with_idle(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A curve on which nothing pays at 64 requests, where the loaded drafter costs 1.08 steps without drafting."""
    noise = {"launch_sd": 0.005}
    costs = {k: {"cost_ratio": {1: 1 + 0.1 * k, 64: 1 + 0.8 * k}, **noise} for k in DRAFTS}
    curve = {
        "num_draft_tokens": list(DRAFTS),
        "idle": True,
        "simulation": {0: {"cost_ratio": {1: 1.03, 64: 1.08}, **noise}, **costs},
    }
    return measured(plan(curve=curve, launches={"min": 3, "max": 6}), tmp_path_factory.mktemp("idle") / "run")


def test_a_resting_schedule_says_what_the_loaded_drafter_costs(with_idle: RunRecord) -> None:
    schedule = predict_from_run(with_idle, HEAD, (), (), threshold=0.03).schedule
    assert schedule is not None
    drafting, resting = schedule.by_batch
    assert drafting.num_draft_tokens > 0
    assert drafting.idle is None
    assert resting.num_draft_tokens == 0
    assert resting.idle is not None
    assert resting.idle.value == pytest.approx(1.08, rel=0.03)
    assert resting.idle.low <= 1.08 <= resting.idle.high
    assert "the loaded drafter costs 1.0" in resting.why or "the loaded drafter costs 1.1" in resting.why


def test_without_an_idle_arm_that_cost_is_called_unmeasured(record: RunRecord) -> None:
    schedule = predict_from_run(record, HEAD, (), (), threshold=0.03).schedule
    assert schedule is not None
    assert schedule.by_batch[-1].idle is None
    assert "was not measured (curve: {idle: true})" in schedule.by_batch[-1].why


def test_beyond_the_batches_where_it_was_measured_that_cost_is_not_known(with_idle: RunRecord) -> None:
    """ "curve: {idle: true}" was the advice to one who had it."""
    schedule = predict_from_run(with_idle, AcceptanceCurve((0.98,)), (), (1,), threshold=0.03).schedule
    assert schedule is not None
    assert (schedule.by_batch[-1].first, schedule.by_batch[-1].idle) == (65, None)
    assert schedule.by_batch[-1].why.endswith("was not measured (only at 1, 64)")


def test_the_head_of_the_idle_arm_is_not_served(with_idle: RunRecord) -> None:
    shown = spell_schedule(predict_from_run(with_idle, HEAD, (), (), threshold=0.03), with_idle, "vllm", "0.30.0").schedule
    assert shown is not None
    assert shown.spelled is not None
    assert json.loads(shown.spelled.flags[1])["model"] == "DRAFTER_FOLDER"


def test_the_idle_arm_is_a_probe_and_no_candidate(with_idle: RunRecord) -> None:
    result = judge(with_idle)
    assert result.headline.startswith("No drafter was measured")
    for item in result.comparisons:
        assert item.outcome is None
    (told,) = (item.text for item in result.conclusions if "loaded and no drafts" in item.text)
    assert "at c=1 and" in told
    info = next(arm for arm in result.arms if arm.name == "curve-idle")
    assert info.is_probe
    assert info.schedule == ((1, 100_000, 0),)
    # it shows no c of any number of drafts
    assert all("curve-idle" not in point.basis for point in result.break_even)


def test_the_schedule_is_spelled_for_an_engine_and_refused_where_it_has_none(record: RunRecord) -> None:
    result = predict_from_run(record, HEAD, (), (), threshold=0.03)
    shown = spell_schedule(result, record, "vllm", "0.30.0").schedule
    assert shown is not None
    assert shown.spelled is not None
    config = json.loads(shown.spelled.flags[1])
    assert config["num_speculative_tokens_per_batch_size"][0][0] == 1
    # the head of a forced arm is a stand-in: it must not look like one to serve
    assert config["model"] == "DRAFTER_FOLDER"
    with pytest.raises(UsageError, match=r"vLLM 0\.20\.0 has no"):
        spell_schedule(result, record, "vllm", "0.20.0")
    with pytest.raises(UsageError, match="not a release number"):
        spell_schedule(result, record, "vllm", "newest")


def test_without_a_drafter_there_are_costs_and_no_schedule(record: RunRecord) -> None:
    result = predict_from_run(record, None, (), (), threshold=0.03)
    assert result.schedule is None
    assert all(point.speedup is None for batch in result.batches for point in batch.points)
    with pytest.raises(UsageError, match="no schedule to write"):
        spell_schedule(result, record, "vllm", None)


def test_what_was_not_measured_is_said_when_it_is_asked_for(record: RunRecord) -> None:
    result = predict_from_run(record, HEAD, (1, 8), (3, 9), threshold=0.03)
    reasons = " ".join(entry.reason for entry in result.unpredicted)
    assert "nothing was measured at 8 running requests" in reasons
    assert "9 drafts lie beyond those measured" in reasons


def test_a_run_without_forced_arms_is_refused_with_what_to_measure(tmp_path: Path) -> None:
    bare = measured(plan(curve=None, arms={"plain": None, "again": None}), tmp_path / "run")
    with pytest.raises(UsageError, match="curve: true"):
        predict_from_run(bare, HEAD, (), (), threshold=0.03)


def test_the_verdict_on_a_curve_says_what_a_drafter_must_reach_and_blames_no_point_left_out(record: RunRecord) -> None:
    result = judge(record)
    assert result.headline.startswith("No drafter was measured, only what rounds cost: break-even accept lengths run from 1.1")
    assert not [finding for finding in result.findings if finding.code == "nothing-to-compare"]
    assert [change for change in result.what_would_change_it if "At c=64 a drafter pays above accept length" in change]
