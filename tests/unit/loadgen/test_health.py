from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from breakeven.loadgen.health import LoopWatch, client_voids, dispatch_delay_p99
from breakeven.loadgen.samples import ClientHealth, RequestSample


def health(lag_s: float = 0.001, delay_s: float = 0.001, cpu_share: float = 0.1) -> ClientHealth:
    return ClientHealth(loop_lag_p99_s=lag_s, dispatch_delay_p99_s=delay_s, cpu_share=cpu_share)


def test_a_fast_client_voids_nothing(sample: Callable[..., RequestSample]) -> None:
    assert client_voids(health(), [sample()]) == []


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        (health(lag_s=0.15), "event loop late by 150 ms (p99), limit 100 ms"),
        (health(delay_s=0.25), "requests sent 250 ms late (p99), limit 100 ms"),
        (health(cpu_share=0.93), "client used 93% of a core, limit 80%"),
    ],
)
def test_each_limit_voids(found: ClientHealth, detail: str) -> None:
    (void,) = client_voids(found)
    assert (void.code, void.detail) == ("client_bottleneck", detail)


def test_slots_left_empty_void(sample: Callable[..., RequestSample]) -> None:
    slow = [sample(scheduled_s=0.0, start_s=0.02, end_s=1.0), sample(scheduled_s=-1.0, start_s=-0.5, end_s=0.5)]
    (void,) = client_voids(health(), slow)
    assert void.detail == "slots stood empty for 2.0% of the time, limit 1%"


def test_dispatch_delay_is_that_of_requests_due_in_the_window(sample: Callable[..., RequestSample]) -> None:
    in_time = [sample(scheduled_s=0.1, start_s=0.1 + index * 1e-3) for index in range(101)]
    assert dispatch_delay_p99([*in_time, sample(scheduled_s=-3.0, start_s=-1.0)]) == pytest.approx(0.099)
    assert dispatch_delay_p99([]) == 0.0


async def test_the_watch_sees_a_blocked_loop_and_its_cpu() -> None:
    watch = LoopWatch()
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    watch.start()
    for _ in range(4):
        await asyncio.sleep(0.02)
        until_s = time.process_time() + 0.05
        while time.process_time() < until_s:
            pass
    await asyncio.sleep(0.02)
    watch.stop()
    share = (time.process_time() - cpu_s) / (time.perf_counter() - begun_s)
    seen = watch.health()
    assert seen.loop_lag_p99_s > 0.035
    assert seen.cpu_share == pytest.approx(share, rel=0.1)


async def test_a_watch_that_never_ran_has_seen_nothing() -> None:
    watch = LoopWatch()
    watch.stop()
    assert watch.health() == ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.0)
