"""A plan with a curve: what it stands for, what is measured of it, and that a killed run decides the same."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from breakeven.engines.base import Arm
from breakeven.errors import PlanError
from breakeven.experiment.cost_ratios import measure_costs
from breakeven.experiment.curving import certain_points, curve_points, surface_of, without_unmeasured
from breakeven.experiment.live import LiveArm, SimulatedArm
from breakeven.experiment.plan import parse_plan
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.runner import carry_out
from breakeven.experiment.stopping import still_wanted
from breakeven.experiment.store import RunStore
from breakeven.experiment.summary import RunSummary

DRAFTS = (1, 2, 3, 4, 5, 6, 7)


def truth(batch: int, k: int) -> float:
    """A draft costs 0.1 of a step, and 3 more past 128 tokens at once."""
    return 1.0 + 0.1 * k + (3.0 if batch * (k + 1) > 128 else 0.0)


def curve_plan(**changes: Any) -> Plan:
    noise = {"launch_sd": 0.01}
    return Plan.model_validate(
        {
            "name": "curve",
            "engine": "fake",
            "launches": {"min": 3, "max": 6},
            "max_running_requests": 32,
            "workload": {"max_tokens": 64, "fixed_length": True},
            "load": [{"concurrency": 1}, {"concurrency": 32}],
            "arms": {"plain": {"simulation": noise}},
            "curve": {
                "num_draft_tokens": list(DRAFTS),
                "simulation": {k: {"cost_ratio": {b: truth(b, k) for b in (1, 32)}, **noise} for k in DRAFTS},
            },
        }
        | changes
    )


def measured(plan: Plan, folder: Path) -> RunRecord:
    def make_live(arm: Arm) -> LiveArm:
        return SimulatedArm(arm, seed=plan.seed, window_s=plan.window_s)

    with RunStore(folder, plan) as store:
        store.begin({})
        carry_out(plan, store, make_live, partial(still_wanted, curve=plan.curve), lambda _: None, side_by_side=False)
        return store.record()


def test_a_curve_stands_for_arms_and_needs_no_others() -> None:
    plan = parse_plan("engine: fake\nworkload: {fixed_length: true}\nload: [{concurrency: 1}]\ncurve: true\n", "plan.yaml")
    assert set(plan.arm_plans) == {"plain"} | {f"curve-k{k}{low}" for k in (1, 2, 3, 4, 5) for low in ("", "-low")}
    lengths = {arm.name: arm.speculation.forced_accept_length for arm in plan.arms() if arm.speculation}
    assert lengths["curve-k4"] == pytest.approx(3.0)
    assert lengths["curve-k4-low"] == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ("{num_draft_tokens: []}", "curve.num_draft_tokens is empty"),
        ("{num_draft_tokens: [0, 2]}", "curve.num_draft_tokens.0 is 0"),
        ("{num_draft_tokens: [2, 2]}", "lists a number twice"),
        ("{drafts: [1]}", "unknown key 'drafts' in curve"),
        ("{method: ngram, drafter: random}", "takes no drafter"),
        ("{precision: 0}", "curve.precision is 0"),
        ("5", "curve is 5; expected a table of keys"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused_with_its_line(curve: str, message: str) -> None:
    text = f"engine: fake\nworkload: {{fixed_length: true}}\nload: [{{concurrency: 1}}]\ncurve: {curve}\n"
    with pytest.raises(PlanError, match=r"plan\.yaml:4: ") as caught:
        parse_plan(text, "plan.yaml")
    assert message in str(caught.value)


def test_a_stored_plan_with_a_curve_reads_back_as_it_was() -> None:
    plan = curve_plan()
    assert Plan.model_validate_json(plan.model_dump_json(by_alias=True)).model_dump_json() == plan.model_dump_json()


def test_a_straight_curve_costs_three_numbers_of_drafts_and_a_cliff_is_closed_in_on(tmp_path: Path) -> None:
    plan = curve_plan()
    record = measured(plan, tmp_path / "run")
    run = RunSummary(record)
    surface = surface_of(run, measure_costs(run), "eagle3")
    assert surface.drafts(1) == (1, 3, 7)
    # 32 x (k + 1) passes 128 between 3 and 4 drafts
    assert {3, 4} <= set(surface.drafts(32))
    for batch in (1, 32):
        for k in DRAFTS:
            cost = surface.cost(batch, k)
            assert cost.value == pytest.approx(truth(batch, k), rel=0.1)
    names = {arm.name for arm in without_unmeasured(record).arms}
    assert "curve-k3" in names
    assert "curve-k6-low" not in names


def test_a_price_that_plainly_does_not_depend_on_what_is_accepted_is_not_asked_for_again(tmp_path: Path) -> None:
    plan = curve_plan(load=[{"concurrency": 1}])
    for launch_sd, launches in ((0.002, 2), (0.05, 3)):
        arms = {
            name: arm.model_copy(update={"simulation": {**arm.simulation, "launch_sd": launch_sd}})
            for name, arm in plan.arm_plans.items()
        }
        run = RunSummary(measured(plan.model_copy(update={"arm_plans": arms}), tmp_path / str(launches)))
        assert run.num_launches("curve-k7-low") == launches
        assert run.num_launches("curve-k7") >= 3


@pytest.mark.slow
def test_the_next_block_depends_on_nothing_but_stored_trials(tmp_path: Path) -> None:
    plan = curve_plan()
    assert plan.curve is not None
    whole = measured(plan, tmp_path / "run")
    for num_blocks in range(1, 5):
        cut = replace(whole, trials=[trial for trial in whole.trials if trial.block < num_blocks])
        wanted = set(curve_points(cut, plan.curve))
        in_block = {(trial.arm, trial.load.label) for trial in whole.trials if trial.block == num_blocks}
        assert {pair for pair in in_block if pair[0] != "plain"} == wanted


@pytest.mark.slow
def test_a_run_cut_short_ends_with_the_trials_of_one_that_was_not(tmp_path: Path) -> None:
    plan = curve_plan()
    whole = measured(plan, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop_at(number: int) -> None:
        count = 0

        def tell(event: object) -> None:
            nonlocal count
            count += type(event).__name__ == "TrialEnded"
            if count == number:
                raise Stop

        def make_live(arm: Arm) -> LiveArm:
            return SimulatedArm(arm, seed=plan.seed, window_s=plan.window_s)

        with RunStore(tmp_path / "cut", plan) as store:
            store.begin({})
            with pytest.raises(Stop):
                carry_out(plan, store, make_live, partial(still_wanted, curve=plan.curve), tell, side_by_side=False)

    for number in (3, 7, 11):
        stop_at(number)
    resumed = measured(plan, tmp_path / "cut")
    places = [sorted((t.arm, t.load.label, t.block, t.repeat) for t in record.trials) for record in (whole, resumed)]
    assert len(set(places[0])) == len(places[0])
    # other launches, other noise: where a point stops may differ by a block, what is begun may not
    assert {place[:2] for place in places[0]} == {place[:2] for place in places[1]}


def test_what_is_certain_is_what_a_dry_run_counts() -> None:
    points = certain_points(curve_plan())
    assert {arm for arm, _ in points} == {"plain", "curve-k1", "curve-k3", "curve-k7", "curve-k7-low"}
    assert len(points) == 10


def test_a_price_that_depends_on_what_is_accepted_is_measured_both_ways_everywhere(tmp_path: Path) -> None:
    plan = curve_plan(load=[{"concurrency": 1}])
    dearer = {"cost_ratio": 2.4}
    arms = dict(plan.arm_plans)
    arms["curve-k7-low"] = arms["curve-k7-low"].model_copy(update={"simulation": dearer})
    record = measured(plan.model_copy(update={"arm_plans": arms}), tmp_path / "run")
    assert {trial.arm for trial in record.trials} >= {"curve-k1-low", "curve-k3-low", "curve-k7-low"}
    run = RunSummary(record)
    found = measure_costs(run).pooled["eagle3", 7, "c=1"]
    assert found.disagreeing is not None
    assert math.exp(found.log.high) >= 2.3
