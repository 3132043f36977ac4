"""The fake engine shows what it declares: that is what everything tested against it stands on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.fake.simulate import simulate_trial
from breakeven.engines.fake.truth import truth_of
from breakeven.errors import PlanError
from breakeven.loadgen.samples import LoadPoint

LOAD = LoadPoint(concurrency=4, max_tokens=100)
PLAIN = {"step_s": 0.01, "prefill_s": 0.1}


def arm(simulation: Mapping[str, object], k: int | None = None, forced: float | None = None, cap: int = 8) -> Arm:
    speculation = None if k is None else Speculation(method="eagle3", num_draft_tokens=k, forced_accept_length=forced)
    return Arm(name="a", engine="fake", speculation=speculation, simulation=simulation, max_running_requests=cap)


def tokens_per_s(an_arm: Arm, load: LoadPoint = LOAD, launch: int = 1, trial: int = 1, index: int = 0) -> float:
    result, (_, after) = simulate_trial(an_arm, load, window_s=20.0, launch_seed=launch, trial_seed=trial, trial_index=index)
    return after.generation_tokens / result.window_s


def test_plain_throughput_is_batch_over_request_time() -> None:
    # a request takes 0.1 s of prefill and 99 steps of 10 ms
    assert tokens_per_s(arm(PLAIN)) == pytest.approx(4 * 100 / (0.1 + 99 * 0.01), rel=0.02)


def test_speculation_obeys_the_identity() -> None:
    joint = (0.8, 0.6, 0.4)
    ratio = tokens_per_s(arm({**PLAIN, "prefill_s": 0.0, "cost_ratio": 1.4, "joint": joint}, k=3)) / tokens_per_s(
        arm({**PLAIN, "prefill_s": 0.0})
    )
    assert ratio == pytest.approx(2.8 / 1.4, rel=0.05)


def test_a_schedule_drafts_by_the_running_batch() -> None:
    def scheduled(concurrency: int) -> tuple[float, int]:
        speculation = Speculation(method="eagle3", num_draft_tokens=3, schedule=((1, 2, 3), (3, 8, 0)))
        costs = {2: 1.4, 3: 1.05}
        truth = {**PLAIN, "prefill_s": 0.0, "cost_ratio": costs, "joint": (0.8, 0.6, 0.4)}
        an_arm = Arm(name="a", engine="fake", speculation=speculation, simulation=truth)
        load = LoadPoint(concurrency=concurrency, max_tokens=100)
        _, (_, after) = simulate_trial(an_arm, load, window_s=20.0, launch_seed=1, trial_seed=1)
        assert after.acceptance is not None
        return tokens_per_s(an_arm, load) / tokens_per_s(arm({**PLAIN, "prefill_s": 0.0}), load), after.acceptance.num_drafted

    drafting, num_drafted = scheduled(2)
    assert drafting == pytest.approx(2.8 / 1.4, rel=0.05)
    assert num_drafted > 0
    resting, num_drafted = scheduled(4)
    assert resting == pytest.approx(1 / 1.05, rel=0.05)
    assert num_drafted == 0


def test_acceptance_counters_follow_joint_and_drafted_share() -> None:
    an_arm = arm({**PLAIN, "joint": (0.8, 0.4), "drafted_share": 0.5}, k=2)
    _, (_, after) = simulate_trial(an_arm, LOAD, window_s=200.0, launch_seed=1, trial_seed=1)
    assert after.acceptance is not None
    assert after.acceptance.joint == pytest.approx((0.8, 0.4), abs=0.01)
    assert after.acceptance.drafted_share == pytest.approx(0.5, abs=0.001)
    assert after.acceptance.accept_length == pytest.approx(1 + 0.5 * 1.2, abs=0.01)


@pytest.mark.parametrize("length", [1.0, 2.3, 4.0])
def test_forced_accept_length_is_met(length: float) -> None:
    _, (_, after) = simulate_trial(arm(PLAIN, k=3, forced=length), LOAD, window_s=100.0, launch_seed=1, trial_seed=1)
    assert after.acceptance is not None
    assert after.acceptance.accept_length == pytest.approx(length, abs=0.01)


def test_a_launch_has_one_speed_and_launches_differ_by_the_declared_sd() -> None:
    noisy = arm({**PLAIN, "prefill_s": 0.0, "launch_sd": 0.1})
    # the trial's own seed only shifts where requests start
    assert tokens_per_s(noisy, launch=5, trial=1) == pytest.approx(tokens_per_s(noisy, launch=5, trial=2), rel=0.01)
    logs = [math.log(tokens_per_s(noisy, launch=launch)) for launch in range(200)]
    assert statistics.stdev(logs) == pytest.approx(0.1, rel=0.15)


def test_drift_is_correlated_within_a_launch_only() -> None:
    drifting = arm({**PLAIN, "prefill_s": 0.0, "drift_sd": 0.1, "drift_correlation": 0.8})
    first = [math.log(tokens_per_s(drifting, launch=launch, index=2)) for launch in range(200)]
    second = [math.log(tokens_per_s(drifting, launch=launch, index=3)) for launch in range(200)]
    assert statistics.correlation(first, second) == pytest.approx(0.8, abs=0.08)
    assert abs(statistics.correlation(first[:-1], second[1:])) < 0.2


def test_outliers_are_slow_and_as_frequent_as_declared() -> None:
    spiky = arm({**PLAIN, "prefill_s": 0.0, "outlier_probability": 0.2, "outlier_slowdown": 2.0})
    usual = tokens_per_s(arm({**PLAIN, "prefill_s": 0.0}))
    slow = sum(tokens_per_s(spiky, trial=trial) < 0.6 * usual for trial in range(200))
    assert slow == pytest.approx(40, abs=20)


def test_a_full_server_queues() -> None:
    _, (before, after) = simulate_trial(
        arm({**PLAIN, "admits": 2}), LoadPoint(concurrency=6, max_tokens=100), window_s=20.0, launch_seed=1, trial_seed=1
    )
    assert (before.num_running, before.num_waiting) == (2, 4)
    assert (after.num_running, after.num_waiting) == (2, 4)


def test_open_loop_serves_what_arrives_until_it_is_full() -> None:
    light, heavy = LoadPoint(rate_per_s=1.0, max_tokens=100), LoadPoint(rate_per_s=50.0, max_tokens=100)
    long = {"window_s": 200.0, "launch_seed": 1, "trial_seed": 1}
    _, (_, after) = simulate_trial(arm(PLAIN), light, **long)
    assert after.generation_tokens / 200.0 == pytest.approx(100.0, rel=0.2)
    assert after.num_waiting == 0
    _, (_, after) = simulate_trial(arm(PLAIN), heavy, **long)
    assert after.generation_tokens / 200.0 == pytest.approx(8 * 100 / 1.09, rel=0.02)
    assert after.num_waiting > 1000


def test_hostile_truths_reach_the_samples() -> None:
    an_arm = arm(
        {**PLAIN, "preemptions_per_request": 0.5, "foreign_tokens_per_s": 100.0, "degenerate_probability": 1.0, "client_lag_s": 0.4}
    )
    result, (_, after) = simulate_trial(an_arm, LOAD, window_s=20.0, launch_seed=1, trial_seed=1)
    assert after.num_preemptions > 10
    assert after.generation_tokens - 20 * tokens_per_s(arm(PLAIN)) == pytest.approx(2000, abs=1)
    assert all(sample.degenerate for sample in result.samples)
    assert result.health.loop_lag_p99_s == 0.4
    result, _ = simulate_trial(arm({**PLAIN, "error_probability": 1.0}), LOAD, window_s=20.0, launch_seed=1, trial_seed=1)
    assert all(sample.error and sample.finish_reason is None for sample in result.samples)


@pytest.mark.parametrize(
    ("simulation", "k", "forced", "message"),
    [
        ({"step_time": 0.01}, None, None, "step_time: Extra inputs"),
        ({"step_s": -1.0}, None, None, "step_s must be a number from 1e-06 to 10000"),
        ({"cost_ratio": {0: 1.0}}, None, None, "cost_ratio must be a number from 1e-06 to 10000, or map batches from 1"),
        ({"step_s": 1e-300}, None, None, "step_s must be a number from 1e-06 to 10000"),
        ({"step_s": {1: 1e300}}, None, None, "step_s must be a number from 1e-06 to 10000"),
        ({"launch_sd": 1e10}, None, None, "launch_sd: Input should be less than or equal to 3"),
        ({"foreign_tokens_per_s": 1e300}, None, None, "foreign_tokens_per_s: Input should be less than"),
        ({"client_lag_s": 1e300}, None, None, "client_lag_s: Input should be less than"),
        ({"joint": (0.5, 0.6)}, 2, None, "cannot rise with position"),
        ({"joint": (0.5,)}, None, None, "has no speculation"),
        ({"joint": (0.5,)}, 2, None, "drafts 2 tokens but declares joint acceptance at 1 positions"),
        ({"joint": (0.5, 0.4)}, 2, 1.5, "forces its accept length"),
        ({}, 2, 3.5, "lies between 1 and 3"),
    ],
)
def test_impossible_truths_are_refused_in_words(
    simulation: Mapping[str, object], k: int | None, forced: float | None, message: str
) -> None:
    with pytest.raises(PlanError, match=r"arm 'a'") as error:
        truth_of(arm(simulation, k, forced))
    assert message in str(error.value)
