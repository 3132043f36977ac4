"""From trials to ratios: pairing, what a block counts for, and how often the outcome is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from breakeven.engines.base import Arm, Counters, Speculation
from breakeven.experiment.admission import mean_waiting
from breakeven.experiment.comparing import compare, log_ratio_of
from breakeven.experiment.record import RunRecord
from breakeven.experiment.stopping import open_comparisons
from breakeven.experiment.summary import RunSummary, log_throughput
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import ClientHealth, LoadPoint, RequestSample, Void
from breakeven.stats.decision import decide

LOAD = LoadPoint(concurrency=4)
PLAIN, EAGLE = Arm(name="plain", engine="fake"), Arm(name="eagle", engine="fake")
FORCED = Arm(name="forced", engine="fake", speculation=Speculation(method="eagle3", num_draft_tokens=3, forced_accept_length=2.0))


def trial(
    arm: str,
    block: int,
    tokens: int,
    *,
    repeat: int = 0,
    launch: str | None = None,
    void: bool = False,
    running: int | None = None,
    waiting: int = 0,
) -> Trial:
    """One second in which `tokens` arrive."""
    sample = RequestSample(
        index=0,
        prompt_id="p",
        kind="chat",
        scheduled_s=0.1,
        start_s=0.1,
        first_token_s=0.2,
        end_s=0.9,
        prompt_tokens=8,
        output_tokens=tokens,
        finish_reason="length",
        arrivals=((0.2, 1), (0.9, tokens)),
    )
    counters = None
    if running is not None:
        scrape = Counters(time_s=0.0, prompt_tokens=0, generation_tokens=0, num_running=running, num_waiting=waiting)
        counters = scrape, scrape
    return Trial(
        arm=arm,
        load=LOAD,
        block=block,
        launch=launch or f"{arm}-{block}",
        order=0,
        repeat=repeat,
        started_at_unix_s=100.0 * block + repeat,
        window_s=1.0,
        samples=(sample,),
        health=ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.1),
        counters=counters,
        voids=(Void(code="errors", detail="made up"),) if void else (),
    )


def record(
    trials: Sequence[Trial], *, arms: Sequence[Arm] = (PLAIN, EAGLE), min_launches: int = 3, max_launches: int = 8
) -> RunRecord:
    return RunRecord(
        name="run",
        baseline="plain",
        threshold=0.03,
        min_launches=min_launches,
        max_launches=max_launches,
        arms=arms,
        loads=(LOAD,),
        trials=trials,
    )


def paired(trials: Sequence[Trial]) -> dict[int, list[float]]:
    return RunSummary(record(trials)).paired("eagle", "plain", "c=4", log_throughput)


def test_repeats_of_a_block_pair_up() -> None:
    trials = [trial("plain", 0, 100), trial("plain", 0, 200, repeat=1), trial("eagle", 0, 150), trial("eagle", 0, 220, repeat=1)]
    assert paired(trials) == {0: pytest.approx([math.log(1.5), math.log(1.1)])}


def test_a_voided_trial_takes_its_pair_with_it() -> None:
    trials = [
        trial("plain", 0, 100),
        trial("plain", 0, 9, repeat=1, void=True),
        trial("eagle", 0, 150),
        trial("eagle", 0, 220, repeat=1),
    ]
    assert paired(trials) == {0: pytest.approx([math.log(1.5)])}


def test_without_a_pair_left_a_block_compares_medians() -> None:
    trials = [trial("plain", 0, 100), trial("eagle", 0, 9, void=True), trial("eagle", 0, 130, repeat=1)]
    assert paired(trials) == {0: pytest.approx([math.log(1.3)])}


def test_a_block_without_the_baseline_is_no_block() -> None:
    assert paired([trial("eagle", 0, 130), trial("plain", 1, 100)]) == {}


def test_two_launches_of_an_arm_in_one_block_pair_in_order() -> None:
    trials = [
        trial(arm, 0, tokens, launch=launch)
        for arm, tokens, launch in (("plain", 100, "a"), ("eagle", 110, "b"), ("eagle", 240, "c"), ("plain", 200, "d"))
    ]
    assert paired(trials) == {0: pytest.approx([math.log(1.1), math.log(1.2)])}


def test_a_trial_without_tokens_makes_the_comparison_undecided() -> None:
    trials = [trial(arm, block, tokens) for block in range(3) for arm, tokens in (("plain", 100), ("eagle", 200))]
    assert compare(RunSummary(record(trials)), "eagle", "c=4").outcome == "pays"
    trials[-1] = trial("eagle", 2, 0)
    compared = compare(RunSummary(record(trials)), "eagle", "c=4")
    assert not compared.log_ratio.usable
    assert compared.outcome == "undecided"


def blocks_of(ratios: Sequence[float], arm: str = "eagle", **more: int) -> list[Trial]:
    return [trial("plain", block, 1000, **more) for block in range(len(ratios))] + [
        trial(arm, block, round(1000 * ratio), **more) for block, ratio in enumerate(ratios)
    ]


def test_open_until_decided_or_the_budget_is_spent() -> None:
    assert open_comparisons(record([])) == [("eagle", "c=4")]
    assert open_comparisons(record(blocks_of([1.5, 1.5]))) == [("eagle", "c=4")]  # below min_launches
    assert open_comparisons(record(blocks_of([1.50, 1.51, 1.49]))) == []
    wavering = [1.0, 1.2, 1.1, 0.95, 1.05, 1.2, 1.0, 1.1]
    assert open_comparisons(record(blocks_of(wavering[:7]))) == [("eagle", "c=4")]
    assert open_comparisons(record(blocks_of(wavering))) == []


def test_forced_arms_stop_at_the_least_number_of_launches() -> None:
    arms = PLAIN, FORCED
    assert open_comparisons(record(blocks_of([1.0, 1.2], "forced"), arms=arms)) == [("forced", "c=4")]
    assert open_comparisons(record(blocks_of([1.0, 1.2, 1.1], "forced"), arms=arms)) == []


def test_launches_that_give_nothing_are_not_repeated_for_ever() -> None:
    voided = [trial(arm, block, 100, void=True) for block in range(3) for arm in ("plain", "eagle")]
    assert open_comparisons(record(voided[:4])) == [("eagle", "c=4")]
    assert open_comparisons(record(voided)) == []


def test_unequal_admission_makes_a_comparison_void_and_closes_it() -> None:
    trials = [
        trial(arm, block, tokens, running=running)
        for block in range(3)
        for arm, tokens, running in (("plain", 100, 4), ("eagle", 200, 3))
    ]
    compared = compare(RunSummary(record(trials)), "eagle", "c=4")
    assert compared.outcome == "undecided"
    assert compared.not_comparable is not None
    assert "eagle ran 3.0 requests on average and plain 4.0" in compared.not_comparable
    assert open_comparisons(record(trials)) == []


def test_scrapes_between_two_requests_are_not_taken_for_unequal_admission() -> None:
    trials = [
        trial(arm, block, tokens, running=4 if arm == "plain" or block else 3)
        for block in range(4)
        for arm, tokens in (("plain", 100), ("eagle", 200))
    ]
    assert compare(RunSummary(record(trials)), "eagle", "c=4").not_comparable is None


def test_two_scrapes_of_one_trial_that_agree_by_chance_are_not_taken_for_unequal_admission() -> None:
    trials = [trial("plain", 0, 100, running=3), trial("eagle", 0, 200, running=4)]
    assert compare(RunSummary(record(trials)), "eagle", "c=4").not_comparable is None


def test_a_request_that_is_let_in_while_nothing_runs_neither_queues_nor_counts_as_absent() -> None:
    trials = [
        trial(arm, block, tokens, running=1 if arm == "plain" else 0, waiting=0 if arm == "plain" else 1)
        for block in range(4)
        for arm, tokens in (("plain", 100), ("eagle", 200))
    ]
    run = RunSummary(record(trials))
    assert compare(run, "eagle", "c=4").not_comparable is None
    assert mean_waiting(run.trials("eagle", "c=4")) == 0.0
    behind_another = [trial("eagle", block, 200, running=1, waiting=1) for block in range(4)]
    assert mean_waiting(behind_another) == 1.0


def test_limits_count_only_where_they_bind() -> None:
    capped = Arm(name="eagle", engine="fake", max_running_requests=2)
    trials = blocks_of([1.5, 1.5, 1.5])
    compared = compare(RunSummary(record(trials, arms=(PLAIN, capped))), "eagle", "c=4")
    assert compared.not_comparable is not None
    assert "eagle may run 2 requests at once and plain 8" in compared.not_comparable
    roomy = Arm(name="eagle", engine="fake", max_running_requests=6)
    assert compare(RunSummary(record(trials, arms=(PLAIN, roomy))), "eagle", "c=4").not_comparable is None


# What follows are the error rates the product promises, on few plans; benchmarks/verdict_statistics.py has the full tables.

Blocks = list[list[float]]


def simulated_blocks(num_plans: int, num_blocks: int, *, truth: float, seed: int) -> list[Blocks]:
    """Log ratios with 3 % launch noise an arm, AR(1) drift of 1 % within a launch, and one trial in 50 slow by 1.3."""
    rng = np.random.default_rng(seed)
    total = np.full((num_plans, num_blocks, 3), math.log(truth))
    for sign in (1, -1):
        drift = rng.standard_normal(total.shape)
        for place in (1, 2):
            drift[..., place] = 0.6 * drift[..., place - 1] + 0.8 * drift[..., place]
        slow = math.log(1.3) * (rng.random(total.shape) < 0.02)
        total += sign * (0.03 * rng.standard_normal(total.shape[:2])[..., None] + 0.01 * drift - slow)
    blocks: list[Blocks] = total.tolist()
    return blocks


def coverage_at_every_look(judge: Callable[[Blocks], tuple[float, float]], plans: list[Blocks], truth: float) -> float:
    def holds(blocks: Blocks) -> bool:
        low, high = judge(blocks)
        return low <= math.log(truth) <= high

    return sum(all(holds(plan[:n]) for n in range(3, 9)) for plan in plans) / len(plans)


def as_shipped(blocks: Blocks) -> tuple[float, float]:
    estimate = log_ratio_of(blocks, 3, 8)
    return estimate.low, estimate.high


def test_all_looks_together_hold_the_truth_at_least_as_often_as_claimed() -> None:
    plans = simulated_blocks(600, 8, truth=1.0, seed=1)
    assert coverage_at_every_look(as_shipped, plans, 1.0) >= 0.935


def test_the_simulation_would_notice_the_usual_mistakes() -> None:
    plans = simulated_blocks(600, 8, truth=1.0, seed=1)

    def at_95_every_look(blocks: Blocks) -> tuple[float, float]:
        estimate = log_ratio_of(blocks, len(blocks), len(blocks))
        return estimate.low, estimate.high

    def pooling_trials(blocks: Blocks) -> tuple[float, float]:
        return as_shipped([[value] for block in blocks for value in block])

    assert coverage_at_every_look(at_95_every_look, plans, 1.0) < 0.90
    assert coverage_at_every_look(pooling_trials, plans, 1.0) < 0.85


@pytest.mark.parametrize("launches", [3, 8])
def test_fixed_designs_cover_the_truth(launches: int) -> None:
    plans = simulated_blocks(800, launches, truth=1.1, seed=2)
    estimates = [log_ratio_of(plan, launches, launches) for plan in plans]
    covered = sum(estimate.low <= math.log(1.1) <= estimate.high for estimate in estimates) / len(plans)
    assert 0.93 <= covered <= 0.97


def outcomes(truth: float, seed: int) -> list[str]:
    """How plans of 3 to 8 launches end."""
    ends = []
    for plan in simulated_blocks(500, 8, truth=truth, seed=seed):
        looks = [decide(log_ratio_of(plan[:n], 3, 8), 0.03) for n in range(3, 9)]
        ends.append(next((outcome for outcome in looks if outcome != "undecided"), "undecided"))
    return ends


def test_no_difference_is_seldom_called_one() -> None:
    ends = outcomes(1.0, seed=3)
    assert (ends.count("pays") + ends.count("slower")) / len(ends) <= 0.02


def test_ten_percent_are_found_within_eight_launches() -> None:
    ends = outcomes(1.1, seed=4)
    assert ends.count("pays") / len(ends) >= 0.88
