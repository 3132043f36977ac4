"""Verdicts on whole simulated runs whose truth is known: outcomes, break-even points, predictions, findings, decision."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.engines.base import Arm, Counters
from breakeven.experiment.record import RunRecord
from breakeven.experiment.stopping import open_comparisons
from breakeven.findings import Finding
from breakeven.verdict.judge import judge
from breakeven.verdict.result import Comparison, Result

NOISE = {
    "step_s": {1: 0.02, 8: 0.03},
    "prefill_s": 0.1,
    "launch_sd": 0.01,
    "drift_sd": 0.005,
    "drift_correlation": 0.5,
}
COST = {1: 1.3, 4: 1.6}
MakeArm = Callable[..., Arm]
Simulate = Callable[..., RunRecord]


def finding(result: Result, code: str) -> Finding:
    (found,) = (item for item in result.findings if item.code == code)
    return found


def codes(result: Result) -> set[str]:
    return {item.code for item in result.findings}


def comparison(result: Result, arm: str, load: str) -> Comparison:
    (found,) = (item for item in result.comparisons if (item.arm, item.load) == (arm, load))
    return found


@pytest.fixture
def plain(make_arm: MakeArm) -> Arm:
    return make_arm("plain", **NOISE)


@pytest.fixture
def eagle(make_arm: MakeArm) -> Arm:
    return make_arm("eagle", 3, joint=(0.6, 0.4, 0.2), cost_ratio=COST, **NOISE)  # accept length 2.2


@pytest.fixture
def dead(make_arm: MakeArm) -> Arm:
    return make_arm("dead", 3, joint=(0.0, 0.0, 0.0), cost_ratio=COST, **NOISE)


@pytest.fixture
def forced(make_arm: MakeArm) -> tuple[Arm, Arm]:
    low = make_arm("forced-1.5", 3, forced=1.5, cost_ratio=COST, **NOISE)
    return low, make_arm("forced-2.5", 3, forced=2.5, cost_ratio=COST, **NOISE)


@pytest.fixture
def healthy(simulate: Simulate, plain: Arm, eagle: Arm, dead: Arm, forced: tuple[Arm, Arm]) -> Result:
    return judge(simulate([plain, dead, eagle, *forced], loads=(1, 4)))


def test_outcomes_follow_the_truth(healthy: Result) -> None:
    assert {item.outcome for item in healthy.comparisons if item.arm.startswith("forced")} == {None}
    assert {(item.arm, item.load): item.outcome for item in healthy.comparisons if not item.arm.startswith("forced")} == {
        ("eagle", "c=1"): "pays",
        ("eagle", "c=4"): "pays",
        ("dead", "c=1"): "slower",
        ("dead", "c=4"): "slower",
    }


def test_break_even_is_the_declared_cost_whatever_length_was_forced(healthy: Result) -> None:
    for point in healthy.break_even:
        truth = COST[int(point.load.removeprefix("c="))]
        assert point.cost_ratio.low is not None
        assert point.cost_ratio.high is not None
        assert point.cost_ratio.low <= truth <= point.cost_ratio.high
        assert point.cost_ratio.estimate == pytest.approx(truth, rel=0.03)
        assert point.basis == "forced acceptance: forced-1.5 and forced-2.5"
    assert [(point.load, point.num_draft_tokens, point.method) for point in healthy.break_even] == [
        ("c=1", 3, "eagle3"),
        ("c=4", 3, "eagle3"),
    ]


def test_prediction_from_parts_measured_apart_agrees_with_what_was_measured(healthy: Result) -> None:
    for arm, length in (("eagle", 2.2), ("dead", 1.0)):
        for load, cost in (("c=1", 1.3), ("c=4", 1.6)):
            item = comparison(healthy, arm, load)
            assert item.predicted is not None
            assert item.prefill_share is not None
            share = item.prefill_share
            assert item.predicted.estimate == pytest.approx(1 / (share + (1 - share) * cost / length), rel=0.04)
            assert "they agree within noise" in item.gap_explained
    assert "measured-differs-from-predicted" not in codes(healthy)


def test_prefill_weighs_in_a_prediction(simulate: Simulate, make_arm: MakeArm, forced: tuple[Arm, Arm]) -> None:
    slow_prefill = {**NOISE, "prefill_s": 1.0}
    arms = [
        make_arm("plain", **slow_prefill),
        make_arm("eagle", 3, joint=(0.6, 0.4, 0.2), cost_ratio=1.3, **slow_prefill),
        make_arm("forced", 3, forced=2.5, cost_ratio=1.3, **slow_prefill),
    ]
    item = comparison(judge(simulate(arms, window_s=20.0)), "eagle", "c=1")
    share = 1.0 / (1.0 + 63 * 0.02)
    assert item.prefill_share == pytest.approx(share, rel=0.05)
    assert item.predicted is not None
    assert item.predicted.estimate == pytest.approx(1 / (share + (1 - share) * 1.3 / 2.2), rel=0.04)


def test_cells_show_what_was_declared(healthy: Result) -> None:
    cells = {(cell.arm, cell.load): cell for cell in healthy.cells}
    plain, eagle = cells["plain", "c=1"], cells["eagle", "c=1"]
    assert plain.request_speed is not None
    assert plain.request_speed.estimate == pytest.approx(1 / 0.02, rel=0.04)
    assert plain.round_s == pytest.approx(0.02, rel=0.04)
    assert plain.acceptance is None
    assert eagle.round_s == pytest.approx(0.02 * 1.3, rel=0.04)
    assert eagle.tpot_s == pytest.approx(0.02 * 1.3 / 2.2, rel=0.05)
    assert eagle.ttft_p50_s == pytest.approx(0.1, rel=0.05)
    assert (eagle.num_launches, eagle.num_trials, eagle.num_voided, eagle.num_running) == (3, 6, 0, 1.0)
    assert eagle.acceptance is not None
    assert eagle.acceptance.joint == pytest.approx((0.6, 0.4, 0.2), abs=0.06)


def test_a_single_window_shows_no_spread_of_its_accept_length(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    (cell,) = (cell for cell in judge(simulate([plain, eagle], launches=1, repeats=1)).cells if cell.arm == "eagle")
    assert cell.acceptance is not None
    assert (cell.acceptance.accept_length.low, cell.acceptance.accept_length.high) == (None, None)


def test_an_accept_length_stays_within_what_its_drafts_allow(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    """Two launches that differ give a t interval far beyond: "2.30 (1.00 to 7.11)" of three drafts was one."""
    good, poor = (make_arm("eagle", 3, joint=joint) for joint in ([0.9, 0.8, 0.7], [0.3, 0.1, 0.05]))
    one, other = (simulate([plain, arm], launches=2) for arm in (good, poor))
    trials = [*(trial for trial in one.trials if trial.block), *(trial for trial in other.trials if not trial.block)]
    for spec, most in ((good.speculation, 4.0), (replace(good.speculation, num_steps=2), 3.0)):
        record = replace(one, trials=trials, arms=[plain, replace(good, speculation=spec)])
        (cell,) = (cell for cell in judge(record).cells if cell.arm == "eagle")
        assert cell.acceptance is not None
        length = cell.acceptance.accept_length
        assert (length.low, length.high) == (1.0, most)
        assert 1.0 < length.estimate < most


def test_decode_ratio_leaves_prefill_out(healthy: Result) -> None:
    item = comparison(healthy, "eagle", "c=1")
    assert item.decode_ratio is not None
    assert item.decode_ratio.estimate == pytest.approx(2.2 / 1.3, rel=0.04)
    assert item.ratio.estimate < item.decode_ratio.estimate


def test_headline_and_decision_name_the_arm_for_each_load(healthy: Result) -> None:
    assert healthy.headline.startswith("Speculation pays at c=1 and c=4: eagle ")
    assert healthy.decision == "Run eagle at every load measured (c=1 and c=4)."
    assert any(text.startswith("At c=4 eagle stops paying below accept length 1.6") for text in healthy.what_would_change_it)


def test_an_arm_as_good_as_the_best_is_named(simulate: Simulate, make_arm: MakeArm, plain: Arm, eagle: Arm) -> None:
    rough = {**NOISE, "launch_sd": 0.03}
    twin = make_arm("twin", 3, joint=(0.6, 0.4, 0.2), cost_ratio=COST, **rough)
    decision = judge(simulate([plain, eagle, twin], loads=(1, 4))).decision
    assert "As good, as far as can be told: " in decision
    weak = make_arm("weak", 3, joint=(0.4, 0.2, 0.1), cost_ratio=COST, **NOISE)
    assert "As good" not in judge(simulate([plain, eagle, weak], loads=(1, 4), launches=5)).decision


def test_forced_arms_are_probes_and_win_nothing(simulate: Simulate, plain: Arm, forced: tuple[Arm, Arm]) -> None:
    result = judge(simulate([plain, *forced]))
    assert comparison(result, "forced-2.5", "c=1").ratio.estimate > 1.5
    assert "No drafter was measured" in result.headline
    assert result.decision.startswith("Keep plain at c=1 until a drafter is measured; breakeven predict --from-run ")
    assert [item.arm for item in result.own_best] == ["plain"]
    assert not any("forced" in conclusion.text for conclusion in result.conclusions)
    assert "not an arm to run" in comparison(result, "forced-2.5", "c=1").why


def test_dead_drafter(healthy: Result) -> None:
    found = finding(healthy, "accept-length-at-floor")
    assert found.severity == "error"
    assert "dead" in found.title
    assert any("quantization" in line and "0 to 3 %" in line for line in found.evidence)
    places = [found.remedy.index(word) for word in ("algorithm flag", "tensors", "d2t", "auxiliary layer", "norm flags", "RoPE")]
    assert places == sorted(places)
    (conclusion,) = (item for item in healthy.conclusions if item.text.startswith("dead accepts nothing"))
    assert "1.3" in conclusion.text
    assert "1.6" in conclusion.text


def test_a_dead_drafter_is_not_told_to_train_more(simulate: Simulate, plain: Arm, dead: Arm, forced: tuple[Arm, Arm]) -> None:
    result = judge(simulate([plain, dead, *forced]))
    (line,) = result.what_would_change_it
    assert line.startswith("At c=1 a drafter with 3 drafts a round pays above accept length 1.3")
    assert line.endswith("dead reaches 1.00, which more training does not mend: see the findings")
    assert result.next_measurements[0].startswith(
        "Read the files and the launch of dead, no server needed (breakeven doctor does): the algorithm flag"
    )


def test_few_rounds_without_an_accepted_draft_prove_no_fault(simulate: Simulate, plain: Arm, dead: Arm) -> None:
    few = judge(simulate([plain, dead], launches=2, repeats=1, window_s=1.0))
    (cell,) = (cell for cell in few.cells if cell.arm == "dead")
    assert cell.acceptance is not None
    low, high = cell.acceptance.accept_length.low, cell.acceptance.accept_length.high
    assert low == 1.0
    assert high is not None
    assert 1.05 < high < 1.3
    assert "accept-length-at-floor" not in codes(few)
    assert not any("not wired" in item.text or "training does not mend" in item.text for item in few.conclusions)
    many = judge(simulate([plain, dead]))
    assert any(line.startswith("none in ") for line in finding(many, "accept-length-at-floor").evidence)


def test_random_weights_are_no_fault_to_be_looked_for(simulate: Simulate, plain: Arm, dead: Arm, forced: tuple[Arm, Arm]) -> None:
    assert dead.speculation is not None
    untrained = replace(dead, speculation=replace(dead.speculation, drafter=Path("/cache/random-heads/abc-0")))
    result = judge(simulate([plain, untrained, *forced]))
    assert finding(result, "accept-length-at-floor").severity == "info"
    assert any("random weights, so nothing else was to be expected" in item.text for item in result.conclusions)
    assert result.what_would_change_it[0].endswith("dead reaches 1.00, having random weights")
    assert not any("Read the files" in step for step in result.next_measurements)


def test_the_accept_length_that_pays_carries_the_doubt_of_the_cost(simulate: Simulate, plain: Arm, forced: tuple[Arm, Arm]) -> None:
    result = judge(simulate([plain, *forced]))
    (cost,) = (item.cost_ratio for item in result.break_even)
    assert cost.low is not None
    assert cost.high is not None
    (text,) = (item.text for item in result.conclusions if item.text.startswith("A round of eagle3"))
    needed, low, high = map(
        float, re.findall(r"above (\d\.\d\d) \((\d\.\d\d) to (\d\.\d\d)\)", text.replace("accept length ", ""))[-1]
    )
    assert low / needed == pytest.approx(cost.low / cost.estimate, abs=0.01)
    assert high / needed == pytest.approx(cost.high / cost.estimate, abs=0.01)


def test_attached_servers_are_one_launch_whatever_the_plan_says(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    launched = judge(simulate([plain, eagle], launches=1))
    assert "launches.min" in finding(launched, "one-launch").remedy
    attached = judge(simulate([plain, replace(eagle, url="http://127.0.0.1:1")], launches=1))
    assert "attached by url counts as one launch" in finding(attached, "one-launch").remedy


def test_speculation_that_a_plan_does_not_tell_is_noticed(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    def said_plain(name: str) -> Result:
        run = simulate([plain, eagle])
        arms = tuple(replace(arm, speculation=None) for arm in run.arms)
        return judge(replace(run, arms=arms, baseline=name))

    assert finding(said_plain("plain"), "undeclared-speculation").severity == "warning"
    assert finding(said_plain("eagle"), "undeclared-speculation").severity == "error"
    assert "undeclared-speculation" not in codes(judge(simulate([plain, eagle])))


def test_figures_of_replaced_kernels_are_said_not_to_be_the_engines(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    run = simulate([plain, eagle])
    clean = judge(run)
    assert "replaced" not in clean.model_dump_json()
    result = judge(replace(run, facts={"eagle": {"unreleased_kernels": "sgl_kernel is imported from /tmp"}}))
    assert result.headline == f"{clean.headline} Measured with replaced kernels: these are not figures of fake."
    assert finding(result, "unreleased-kernels").severity == "warning"
    assert [arm.version for arm in result.arms] == [None, "release unknown with replaced kernels"]
    versioned = judge(
        replace(run, facts={"plain": {"version": "0.5.23"}, "eagle": {"unreleased_kernels": "x", "version": "0.5.23"}})
    )
    assert [arm.version for arm in versioned.arms] == ["0.5.23", "0.5.23 with replaced kernels"]


def test_a_server_that_counts_rounds_but_no_drafts_is_judged_by_rounds(
    simulate: Simulate, plain: Arm, eagle: Arm, dead: Arm
) -> None:
    run = simulate([plain, dead, eagle])

    def without_drafts(counters: Counters) -> Counters:
        acceptance = counters.acceptance
        return counters if acceptance is None else replace(counters, acceptance=replace(acceptance, num_drafted=0))

    trials = tuple(
        replace(trial, counters=(without_drafts(trial.counters[0]), without_drafts(trial.counters[1])))
        for trial in run.trials
        if trial.counters is not None
    )
    run = replace(run, trials=trials)
    result = judge(run)
    (evidence, *_) = finding(result, "accept-length-at-floor").evidence
    assert "accept length 1.00, 0 drafts accepted in" in evidence
    acceptances = [cell.acceptance for cell in result.cells if cell.arm != "plain"]
    assert acceptances
    assert all(acceptance is not None and acceptance.draft_acceptance is None for acceptance in acceptances)
    arms = tuple(replace(arm, speculation=None) for arm in run.arms)
    undeclared = [found for found in judge(replace(run, arms=arms)).findings if found.code == "undeclared-speculation"]
    assert len(undeclared) == 2
    assert all("rounds with drafts" in found.evidence[0] for found in undeclared)


def test_next_to_nothing_accepted_is_checked_like_nothing(simulate: Simulate, make_arm: MakeArm, plain: Arm, eagle: Arm) -> None:
    weak = make_arm("weak", 3, joint=(0.05, 0.01, 0.0), cost_ratio=1.3, **NOISE)
    ngram = make_arm("ngram", 3, method="ngram", joint=(0.05, 0.0, 0.0), cost_ratio=1.1, **NOISE)
    found = finding(judge(simulate([plain, eagle, weak, ngram])), "accept-length-near-floor")
    assert found.title == "Next to no draft of weak is accepted"
    assert "d2t" in found.remedy


def test_acceptance_at_the_ceiling_is_suspicious(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    result = judge(simulate([plain, make_arm("perfect", 2, joint=(1.0, 1.0), cost_ratio=1.2, **NOISE)]))
    assert "every draft accepted" in finding(result, "accept-length-at-ceiling").title
    assert "accept-length-at-ceiling" not in codes(judge(simulate([plain, make_arm("f", 2, forced=3.0, **NOISE)])))


def test_accept_length_that_depends_on_load(simulate: Simulate, make_arm: MakeArm, plain: Arm, eagle: Arm) -> None:
    low = simulate([plain, eagle], loads=(1,))
    high = simulate([plain, make_arm("eagle", 3, joint=(0.4, 0.2, 0.1), cost_ratio=COST, **NOISE)], loads=(4,))
    both = replace(low, loads=[*low.loads, *high.loads], trials=[*low.trials, *high.trials])
    assert "eagle" in finding(judge(both), "accept-length-changes-with-load").title
    assert "accept-length-changes-with-load" not in codes(judge(simulate([plain, eagle], loads=(1, 4))))


def test_accept_lengths_of_few_tokens_differ_by_chance(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    result = judge(simulate([plain, eagle], loads=(1, 2), window_s=1.0, repeats=1))
    low, high = sorted(cell.acceptance.accept_length.estimate for cell in result.cells if cell.acceptance is not None)
    assert high / low > 1.03
    assert "accept-length-changes-with-load" not in codes(result)


def test_real_rounds_dearer_than_forced_ones_are_a_named_gap(
    simulate: Simulate, make_arm: MakeArm, plain: Arm, forced: tuple[Arm, Arm]
) -> None:
    dear = make_arm("dear", 3, joint=(0.6, 0.4, 0.2), cost_ratio=1.6, **NOISE)
    result = judge(simulate([plain, dear, *forced], launches=4))
    found = finding(result, "measured-differs-from-predicted")
    assert "slower than accept length and round cost predict" in found.title
    assert any("its own rounds take 2" in line for line in found.evidence)


def test_cost_that_depends_on_the_accepted_length_is_a_finding(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    arms = [make_arm(f"f{length}", 3, forced=length, cost_ratio=cost, **NOISE) for length, cost in ((1.5, 1.3), (3.0, 1.6))]
    result = judge(simulate([plain, *arms], launches=4))
    assert "depends on how many are accepted" in finding(result, "cost-ratios-disagree").title
    (point,) = result.break_even
    assert point.cost_ratio.low is not None
    assert point.cost_ratio.high is not None
    assert point.cost_ratio.low <= 1.31
    assert point.cost_ratio.high >= 1.59


def test_without_forced_arms_the_cost_is_that_of_the_real_one_and_predicts_nothing(
    simulate: Simulate, plain: Arm, eagle: Arm
) -> None:
    result = judge(simulate([plain, eagle]))
    (point,) = result.break_even
    assert point.basis == "real acceptance, as no arm with these drafts is forced: eagle"
    assert comparison(result, "eagle", "c=1").predicted is None
    assert any("forced acceptance, eagle3 with 3 drafts" in step for step in result.next_measurements)


def test_ngram_has_no_single_cost_and_is_not_predicted(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    ngram = make_arm("ngram", 3, method="ngram", joint=(0.5, 0.4, 0.3), drafted_share=0.3, cost_ratio=1.05, **NOISE)
    result = judge(simulate([plain, ngram]))
    item = comparison(result, "ngram", "c=1")
    assert item.outcome == "pays"
    assert item.predicted is None
    assert "drafts at only 30 % of its steps" in item.gap_explained
    assert item.decode_ratio is not None
    assert result.break_even == ()
    (cell,) = (cell for cell in result.cells if cell.arm == "ngram")
    assert cell.acceptance is not None
    # tokens a step, not tokens a round that carried drafts
    assert cell.acceptance.accept_length.estimate == pytest.approx(1 + 0.3 * 1.2, abs=0.05)
    assert cell.acceptance.per_round_length == pytest.approx(2.2, abs=0.1)


def test_a_baseline_that_is_too_slow_to_be_true_is_void(
    simulate: Simulate, make_arm: MakeArm, eagle: Arm, forced: tuple[Arm, Arm]
) -> None:
    result = judge(simulate([make_arm("plain", **{**NOISE, "step_s": 0.05}), eagle, *forced]))
    assert finding(result, "impossible-cost-ratio").severity == "error"
    assert comparison(result, "eagle", "c=1").outcome == "undecided"
    assert "cannot be right" in result.headline
    assert result.break_even == ()
    assert comparison(result, "eagle", "c=1").launches_to_decide is None


@pytest.mark.parametrize("truth", [{"cap": 2}, {"admits": 2}])
def test_unequal_admission_voids_the_comparison(simulate: Simulate, make_arm: MakeArm, plain: Arm, truth: dict[str, int]) -> None:
    capped = make_arm("capped", 3, joint=(0.9, 0.8, 0.7), cost_ratio=1.1, **truth, **NOISE)
    result = judge(simulate([plain, capped], loads=(1, 4)))
    assert comparison(result, "capped", "c=1").outcome == "pays"
    void = comparison(result, "capped", "c=4")
    assert void.outcome == "undecided"
    assert void.why.startswith("not comparable: capped ")
    assert finding(result, "unequal-admission").severity == "error"
    assert [point.load for point in result.break_even] == ["c=1"]


def test_open_loops_are_judged_by_how_long_requests_take(
    simulate: Simulate, plain: Arm, eagle: Arm, forced: tuple[Arm, Arm]
) -> None:
    result = judge(simulate([plain, eagle, *forced], loads=(), rates=(0.3,), window_s=60.0))
    speeds = {cell.arm: cell.throughput.estimate for cell in result.cells if cell.throughput is not None}
    assert speeds["eagle"] == pytest.approx(speeds["plain"], rel=0.1)  # arrivals set it
    item = comparison(result, "eagle", "0.3/s")
    assert item.outcome == "pays"
    assert item.ratio.estimate > 1.3
    assert item.predicted is None
    assert "open loop" in item.gap_explained
    assert result.break_even == ()
    assert result.own_best == ()


def test_one_launch_says_what_it_cannot_know(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    result = judge(simulate([plain, eagle], launches=1))
    ratio = comparison(result, "eagle", "c=1").ratio
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.high / ratio.low > 1.7  # 1.96 times 10 % for each of two launches, both ways
    assert "assumes a launch s.d. of 10 %" in comparison(result, "eagle", "c=1").why
    assert "one-launch" in codes(result)
    assert any(conclusion.text.startswith("With one launch an arm") for conclusion in result.conclusions)


def test_no_difference_is_undecided_or_none_and_asks_for_launches(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    result = judge(simulate([plain, make_arm("twin", **NOISE)], launches=8))
    assert comparison(result, "twin", "c=1").outcome == "no useful difference"
    assert result.headline.startswith("No arm pays at any load measured: the best is twin")
    rough = {**NOISE, "launch_sd": 0.1}
    result = judge(simulate([make_arm("plain", **rough), make_arm("twin", **rough)]))
    assert comparison(result, "twin", "c=1").outcome == "undecided"
    assert result.headline.startswith("Undecided")
    assert any("launches" in step for step in result.next_measurements)


def test_voided_trials_are_listed_with_reasons(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    from breakeven.loadgen.samples import Void

    run = simulate([plain, eagle])
    trials = list(run.trials)
    trials[0] = replace(trials[0], voids=(Void(code="queued", detail="3 of 4 waited"),))
    result = judge(replace(run, trials=trials))
    (voided,) = result.voided
    assert (voided.arm, voided.launch, voided.reasons) == ("plain", "plain-0", ("queued: 3 of 4 waited",))
    assert finding(result, "trials-voided").severity == "info"
    (cell,) = (cell for cell in result.cells if cell.arm == "plain")
    assert (cell.num_trials, cell.num_voided) == (5, 1)


def test_nothing_measured_is_undecided(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    run = simulate([plain, eagle], launches=0, min_launches=3, max_launches=3)
    result = judge(replace(run, interrupted=True, failures={"eagle": "CUDA out of memory"}))
    assert result.headline.startswith("Undecided")
    assert result.decision == "Keep plain at c=1: nothing there can be compared yet."
    assert result.comparisons == ()
    assert {"arm-not-served", "run-interrupted"} <= codes(result)


def test_greedy_acceptance_is_called_optimistic(simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    assert "greedy-acceptance" in codes(judge(simulate([plain, eagle])))
    assert "greedy-acceptance" not in codes(judge(simulate([plain, eagle], temperature=0.7)))


def test_forced_arms_want_fixed_lengths(healthy: Result, simulate: Simulate, plain: Arm, eagle: Arm) -> None:
    assert "lengths-not-fixed" in codes(healthy)
    assert "lengths-not-fixed" not in codes(judge(simulate([plain, eagle])))


def test_own_best_compares_capacities(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    # rounds that cost the more the larger the batch: best at c=1, while plain goes on growing
    early = make_arm("early", 3, joint=(0.6, 0.4, 0.2), cost_ratio={1: 1.2, 4: 6.0}, **NOISE)
    result = judge(simulate([plain, early], loads=(1, 4)))
    assert [(item.arm, item.load) for item in result.own_best] == [("plain", "c=4"), ("early", "c=1")]
    assert all("peaks lie at different load points" in item.note for item in result.own_best)
    assert result.decision == "Run early at c=1. Run plain at c=4: nothing measured pays there."


def test_drafts_that_cannot_pay_at_all_are_called_so(simulate: Simulate, make_arm: MakeArm, plain: Arm) -> None:
    hopeless = make_arm("hopeless", 2, joint=(0.9, 0.8), cost_ratio=3.5, **NOISE)
    result = judge(simulate([plain, hopeless]))
    assert any("no drafter with 2 drafts a round can pay" in text for text in result.what_would_change_it)


def test_the_same_trials_give_the_same_result_in_any_order(
    simulate: Simulate, plain: Arm, eagle: Arm, forced: tuple[Arm, Arm]
) -> None:
    run = simulate([plain, eagle, *forced])
    assert judge(replace(run, trials=list(reversed(run.trials)))) == judge(run)


def test_the_verdict_and_the_decision_to_go_on_are_one_computation(simulate: Simulate, make_arm: MakeArm) -> None:
    noise = {**NOISE, "launch_sd": 0.03}
    arms = [make_arm("plain", **noise), *(make_arm(f"x{step}", **{**noise, "step_s": step}) for step in (0.0175, 0.0185, 0.02))]
    seen = set()
    for launches in range(3, 9):
        run = simulate(arms, launches=launches, repeats=1, min_launches=3, max_launches=8, window_s=4.0)
        outcomes = {(item.arm, item.load): item.outcome for item in judge(run).comparisons}
        still_open = {place for place, outcome in outcomes.items() if outcome == "undecided" and launches < 8}
        assert set(open_comparisons(run)) == still_open
        seen |= set(outcomes.values())
    assert {"pays", "undecided"} <= seen


def test_results_are_json_without_nan(healthy: Result) -> None:
    def refuse(name: str) -> None:
        pytest.fail(f"{name} in JSON")

    data = json.loads(healthy.model_dump_json(), parse_constant=refuse)
    assert Result.model_validate(data) == healthy
    assert all(math.isfinite(item["ratio"]["estimate"]) for item in data["comparisons"])
