"""Each reason to void a window, found where it holds and not where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from breakeven.engines.base import Arm, Counters, Speculation
from breakeven.engines.fake.simulate import simulate_trial
from breakeven.experiment.voids import find_voids
from breakeven.loadgen.samples import LoadPoint, LoadResult

LOAD = LoadPoint(concurrency=4, max_tokens=64)


def simulated(load: LoadPoint = LOAD, **simulation: object) -> tuple[Arm, LoadResult, tuple[Counters, Counters]]:
    arm = Arm(name="a", engine="fake", simulation=simulation)
    result, counters = simulate_trial(arm, load, window_s=20.0, launch_seed=1, trial_seed=2)
    return arm, result, counters


def codes(arm: Arm, load: LoadPoint, result: LoadResult, counters: tuple[Counters, Counters] | None) -> list[str]:
    return [void.code for void in find_voids(arm, load, result, counters)]


@pytest.mark.parametrize("load", [LOAD, LoadPoint(rate_per_s=2.0, max_tokens=64), LoadPoint(concurrency=1)])
def test_a_good_window_counts(load: LoadPoint) -> None:
    arm, result, counters = simulated(load)
    assert codes(arm, load, result, counters) == []
    assert codes(arm, load, result, None) == []


@pytest.mark.parametrize(
    ("simulation", "expected"),
    [
        ({"error_probability": 0.2}, "errors"),
        ({"degenerate_probability": 0.6}, "degenerate_output"),
        ({"client_lag_s": 0.5}, "client_bottleneck"),
        ({"admits": 3}, "queued"),
        ({"preemptions_per_request": 1.0}, "preempted"),
        ({"foreign_tokens_per_s": 60.0}, "foreign_traffic"),
    ],
)
def test_each_reason(simulation: Mapping[str, object], expected: str) -> None:
    arm, result, counters = simulated(**simulation)
    assert set(codes(arm, LOAD, result, counters)) == {expected}


def test_a_server_without_a_token() -> None:
    arm, result, _ = simulated()
    silent = replace(result, samples=(), steady=False, silence="4 requests got 90 lines without data and not one event")
    (void,) = find_voids(arm, LOAD, silent, None)
    assert void.code == "no_tokens"
    assert "not one token came in 20 s: 4 requests got 90 lines without data" in void.detail


def test_a_server_that_counts_more_than_was_asked_for() -> None:
    arm, result, _ = simulated()
    lied = replace(result, samples=[replace(sample, output_tokens=7 * 64) for sample in result.samples])
    assert codes(arm, LOAD, lied, None) == ["too_many_tokens"]
    overshot = replace(result, samples=[replace(sample, output_tokens=64 + 5) for sample in result.samples])
    assert codes(arm, LOAD, overshot, None) == []


def test_forced_arms_may_write_junk() -> None:
    arm, result, counters = simulated(degenerate_probability=1.0)
    forced = replace(arm, speculation=Speculation(method="ngram", num_draft_tokens=3, forced_accept_length=2.0))
    assert codes(forced, LOAD, result, counters) == []


def test_an_open_loop_may_queue_and_a_moment_of_waiting_means_nothing() -> None:
    arm, result, (before, after) = simulated()
    assert codes(arm, LoadPoint(rate_per_s=1.0), result, (replace(before, num_waiting=9), replace(after, num_waiting=9))) == []
    assert codes(arm, LOAD, result, (before, replace(after, num_waiting=1))) == []
    assert codes(arm, LOAD, result, (replace(before, num_waiting=1), replace(after, num_waiting=2))) == ["queued"]
    both = (replace(before, num_waiting=1), replace(after, num_waiting=2))
    assert [void.code for void in find_voids(arm, LOAD, result, both, (1, 1, 3))] == ["queued"]
    assert find_voids(arm, LOAD, result, both, (1, 0, 3)) == ()


def test_a_lone_request_queues_behind_nobody() -> None:
    lone = LoadPoint(concurrency=1, max_tokens=64)
    arm, result, (before, after) = simulated(lone)
    waiting = (replace(before, num_running=0, num_waiting=1), replace(after, num_running=0, num_waiting=1))
    assert codes(arm, lone, result, waiting) == []


def test_windows_that_never_began() -> None:
    arm, result, _ = simulated()
    assert codes(arm, LOAD, replace(result, steady=False), None) == ["unsteady"]
    assert codes(arm, LOAD, replace(result, samples=()), None) == ["too_few_tokens"]
    failed = [replace(sample, error="HTTP 500", arrivals=(), output_tokens=0) for sample in result.samples]
    assert codes(arm, LOAD, replace(result, samples=failed, steady=False), None) == ["errors", "unsteady", "too_few_tokens"]


def test_a_server_that_is_never_healthy_under_load() -> None:
    arm, result, counters = simulated()

    def found(*healthy: bool) -> list[str]:
        return [void.code for void in find_voids(arm, LOAD, result, counters, (), healthy)]

    assert found(False, False) == ["unhealthy"]
    assert found(False, True, False) == found() == found(True) == []
