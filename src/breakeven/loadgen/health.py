"""Was the client the bottleneck? Three figures a trial, and the limits beyond which the trial says nothing about the server."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np

from breakeven.loadgen.samples import ClientHealth, RequestSample, Void
from breakeven.units import format_duration

__all__ = [
    "MAX_CPU_SHARE",
    "MAX_DISPATCH_DELAY_P99_S",
    "MAX_IDLE_SHARE",
    "MAX_LOOP_LAG_P99_S",
    "LoopWatch",
    "client_voids",
    "dispatch_delay_p99",
]

# Every arrival is stamped up to this much late. Token counts over a window hardly notice; times to first token are wrong by it.
MAX_LOOP_LAG_P99_S = 0.1

# A request sent late by this much is late for the server too: an open loop no longer offers the rate it was asked for.
MAX_DISPATCH_DELAY_P99_S = 0.1

# One thread serves all streams. Work queues behind itself as rho / (1 - rho): above 0.8, more than four events wait at any moment,
# and what the server delivers is no longer what the client sees.
MAX_CPU_SHARE = 0.8

# Share of its slots' time that a closed loop left empty between an answer and the next request: throughput is too low by as much.
# A third of the usual threshold of a verdict (3 %).
MAX_IDLE_SHARE = 0.01

_PERIOD_S = 0.01


class LoopWatch:
    """Event-loop lag and CPU between `start` and `stop`: how much later than asked does a sleeping task wake up?

    The CPU is the whole process's, since display and store compete with the streams for one interpreter.
    """

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._since = (0.0, 0.0)
        self._cpu_share = 0.0

    def start(self) -> None:
        self._since = (time.perf_counter(), time.process_time())
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Take the figures; does nothing where it is not running."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            elapsed_s, cpu_s = time.perf_counter() - self._since[0], time.process_time() - self._since[1]
            self._cpu_share = cpu_s / elapsed_s

    def health(self, samples: Iterable[RequestSample] = ()) -> ClientHealth:
        """What was measured, with the dispatch delay of `samples`."""
        return ClientHealth(
            loop_lag_p99_s=_p99(self._lags_s), dispatch_delay_p99_s=dispatch_delay_p99(samples), cpu_share=self._cpu_share
        )

    async def _watch(self) -> None:
        while True:
            asleep_s = time.perf_counter()
            await asyncio.sleep(_PERIOD_S)
            self._lags_s.append(time.perf_counter() - asleep_s - _PERIOD_S)


def dispatch_delay_p99(samples: Iterable[RequestSample]) -> float:
    """99th percentile of start - scheduled, in seconds, over the requests due in the window; 0 where there are none."""
    return _p99([sample.start_s - sample.scheduled_s for sample in samples if sample.scheduled_s >= 0])


def client_voids(health: ClientHealth, samples: Sequence[RequestSample] = ()) -> list[Void]:
    """Every way in which the client set the pace, as `client_bottleneck` with its figures; empty when the trial can be trusted.

    `samples` add the check of slots left empty between requests, which no fixed number of milliseconds can judge.
    """
    found = []
    if health.loop_lag_p99_s > MAX_LOOP_LAG_P99_S:
        found.append(
            f"event loop late by {format_duration(health.loop_lag_p99_s)} (p99), limit {format_duration(MAX_LOOP_LAG_P99_S)}"
        )
    if health.dispatch_delay_p99_s > MAX_DISPATCH_DELAY_P99_S:
        late, limit = format_duration(health.dispatch_delay_p99_s), format_duration(MAX_DISPATCH_DELAY_P99_S)
        found.append(f"requests sent {late} late (p99), limit {limit}")
    if health.cpu_share > MAX_CPU_SHARE:
        found.append(f"client used {health.cpu_share:.0%} of a core, limit {MAX_CPU_SHARE:.0%}")
    if (idle := _idle_share(samples)) > MAX_IDLE_SHARE:
        found.append(f"slots stood empty for {idle:.1%} of the time, limit {MAX_IDLE_SHARE:.0%}")
    return [Void(code="client_bottleneck", detail=detail) for detail in found]


def _idle_share(samples: Sequence[RequestSample]) -> float:
    due = [sample for sample in samples if sample.scheduled_s >= 0 and sample.error is None]
    whole_s = math.fsum(sample.end_s - sample.scheduled_s for sample in due)
    return math.fsum(sample.start_s - sample.scheduled_s for sample in due) / whole_s if whole_s > 0 else 0.0


def _p99(values: Sequence[float]) -> float:
    return max(0.0, float(np.percentile(values, 99))) if values else 0.0
