"""What makes a measured window say nothing about the arm: from the samples, the client's health and the counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from breakeven.engines.base import Arm, Counters
from breakeven.engines.foreign_traffic import foreign_traffic
from breakeven.loadgen.degenerate import degenerate_voids
from breakeven.loadgen.health import client_voids
from breakeven.loadgen.measures import mean_under_way, num_errors, tokens_in_window
from breakeven.loadgen.run import MIN_TOKENS
from breakeven.loadgen.samples import LoadPoint, LoadResult, Void

__all__ = ["NO_TOKENS", "find_voids"]

NO_TOKENS = "no_tokens"

# A failed request leaves its slot empty for a while; one in a hundred moves throughput by less than a third of the usual threshold.
MAX_ERROR_SHARE = 0.01
# The last round of an answer may go beyond its end; no drafter drafts more.
MAX_OVERSHOOT = 64
# A request shows as waiting until the scheduler's next step, so one at one look means nothing; this share of the load at all does.
MAX_WAITING_SHARE = 0.05


def find_voids(
    arm: Arm,
    load: LoadPoint,
    result: LoadResult,
    counters: tuple[Counters, Counters] | None,
    num_waiting: Sequence[int] = (),
    healthy: Sequence[bool] = (),
) -> tuple[Void, ...]:
    """Every reason not to count this window; empty when it counts.

    counters: scrapes at the window's start and end, None where the server shows none.
    num_waiting: requests that waited, at further moments within the window.
    healthy: what the server's health page said at these moments.
    """
    voids = [*client_voids(result.health, result.samples), *_load_voids(load, result)]
    if not arm.forced:
        voids.extend(degenerate_voids(result.samples))
    if counters is not None:
        voids.extend(_counter_voids(load, result, *counters, num_waiting))
    # busy servers miss a look now and then
    if healthy and not any(healthy):
        voids.append(
            Void(code="unhealthy", detail=f"the server's health page failed at all {len(healthy)} looks while it was loaded")
        )
    return tuple(voids)


def _load_voids(load: LoadPoint, result: LoadResult) -> list[Void]:
    voids = []
    longest = max((sample.output_tokens for sample in result.samples), default=0)
    if longest > load.max_tokens + MAX_OVERSHOOT:
        told = f"the server says that an answer has {longest} tokens where {load.max_tokens} were asked for at most"
        voids.append(Void(code="too_many_tokens", detail=f"{told}: it ignores max_tokens, or its usage counts are wrong"))
    failed = num_errors(result) or sum(sample.error is not None for sample in result.samples if not result.steady)
    if failed > MAX_ERROR_SHARE * len(result.samples):
        first = next((sample.error for sample in result.samples if sample.error is not None), "")
        voids.append(Void(code="errors", detail=f"{failed} of {len(result.samples)} requests failed (first: {first})"))
    if result.silence:
        told = f"not one token came in {result.window_s:.0f} s: {result.silence}; expected server-sent events, data: {{...}}"
        advice = "look at the server's log and at what stands between; if first tokens take longer, lengthen trial.warmup_s"
        return [*voids, Void(code=NO_TOKENS, detail=f"{told}; {advice}")]
    if not result.steady:
        voids.append(Void(code="unsteady", detail="the window began before every slot had its first token, or never began"))
    tokens = tokens_in_window(result)
    if tokens < MIN_TOKENS:
        voids.append(
            Void(
                code="too_few_tokens",
                detail=f"{tokens} tokens in {result.window_s:g} s, expected at least {MIN_TOKENS}; "
                "try a longer window_s, of the load point or of trial",
            )
        )
    return voids


def _counter_voids(
    load: LoadPoint, result: LoadResult, before: Counters, after: Counters, num_waiting: Sequence[int]
) -> list[Void]:
    voids = []
    # a lone request waits for nobody, it is just being let in
    if load.concurrency is not None and load.concurrency > 1:
        waiting = min(before.num_waiting, after.num_waiting, *num_waiting)
        if waiting >= max(1, math.ceil(MAX_WAITING_SHARE * load.concurrency)):
            running = f"{after.num_running} of {load.concurrency} requests ran and {waiting} waited"
            detail = f"{running}: the server admits fewer than the load point asks for"
            voids.append(Void(code="queued", detail=detail))
    if (preempted := after.num_preemptions - before.num_preemptions) > 0:
        voids.append(Void(code="preempted", detail=f"{preempted} preemptions: the KV cache is too small for this load"))
    foreign = foreign_traffic(
        before,
        after,
        own_tokens=tokens_in_window(result),
        own_finished=sum(0.0 < sample.end_s <= result.window_s for sample in result.samples),
        under_way=mean_under_way(result),
    )
    if foreign is not None:
        voids.append(Void(code="foreign_traffic", detail=foreign))
    return voids
