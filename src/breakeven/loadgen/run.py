"""One load point: traffic, a steady window cut out of it, and the raw samples of that window."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.loadgen.client import ChatClient, Endpoint
from breakeven.loadgen.degenerate import degenerate_reason
from breakeven.loadgen.health import LoopWatch
from breakeven.loadgen.prompts import prompt_sequence
from breakeven.loadgen.samples import LoadPoint, LoadResult, Prompt, RequestSample
from breakeven.loadgen.silence import PINGS_TIMEOUT_S, only_pings, silence
from breakeven.loadgen.traffic import Request, Traffic

__all__ = ["ENOUGH_TOKENS", "MIN_TOKENS", "STEADY_TIMEOUT_S", "Progress", "run_load"]

# How long after the warm-up a slot may still wait for its first token before the window begins without it. Long prompts at high
# concurrency take a minute; a server that admits fewer requests than were asked for may keep the last slot waiting for longer.
STEADY_TIMEOUT_S = 120.0

# Below, a window says nothing. How long it must be to hold ENOUGH is judged before it opens: had a window that happens to begin
# slowly more time than one that begins fast, slow arms would look faster than they are.
MIN_TOKENS = 16
ENOUGH_TOKENS = 32

_Phase = Literal["warm-up", "settling", "window"]

_POLL_S = 0.02
_PROGRESS_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """For a display. `remaining_s` is that of the phase, 0 while "settling" waits for first tokens; counts are since the start."""

    phase: _Phase
    remaining_s: float
    num_tokens: int
    num_under_way: int
    num_errors: int


_Show = Callable[[Progress], None] | None


async def run_load(
    endpoint: Endpoint,
    point: LoadPoint,
    prompts: Sequence[Prompt],
    *,
    seed: int,
    warmup_s: float,
    window_s: float,
    on_window_start: Callable[[], Awaitable[None]] | None = None,
    on_window_end: Callable[[], Awaitable[None]] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    drain_s: float = 0.0,
    steady_timeout_s: float = STEADY_TIMEOUT_S,
    max_window_s: float | None = None,
) -> LoadResult:
    """Load `endpoint` as `point` says and measure a window of `window_s` seconds.

    Closed loop: `concurrency` slots, each sending its next request the moment its last one ended. Open loop: a request at every due
    time of a Poisson process, however many are under way, so that a server that falls behind is seen to. The same prompts, point
    and `seed` send the same prompts in the same order, at the same due times, to every arm.

    The window begins once `warmup_s` have passed and every slot has had its first token (or an answer that ended). After
    `steady_timeout_s` more it begins regardless, and the result is not `steady`. `on_window_start` and `on_window_end` run at its
    edges while the load goes on: scrape counters there. After the window, requests under way get `drain_s` to finish while nothing
    new is sent (an open loop needs this for whole latencies); then their connections are closed, so that the server aborts them.

    `max_window_s` lets a slow server have a longer window, in whole times `window_s`: as long as ENOUGH_TOKENS take at the speed
    seen before it opens, and longer while fewer than MIN_TOKENS have come. The rule is the same for every arm.

    Where no token at all has come by then and requests have failed, or no slot has got one, there is no window: the result is not
    `steady`, its samples are those requests, its times count from the start of the warm-up, and no callback of the window is
    called. Pings alone are waited for PINGS_TIMEOUT_S. `LoadResult.silence` says what came where no token did in so long.

    Returns:
        Every request that was under way in the window, those that its edges cut included.

    Raises:
        UsageError: the endpoint's API key is not in the environment.
        PromptsError: there are no prompts.
        Exception: whatever a callback raises, after the load has been stopped. Requests raise nothing: see `RequestSample.error`.
    """
    sequence = prompt_sequence(prompts, seed)
    watch = LoopWatch()
    longest_s = max(window_s, max_window_s or window_s)
    async with ChatClient(endpoint, num_connections=point.concurrency) as client:
        traffic = Traffic(client, point, sequence, seed=seed)
        try:
            start_s = time.perf_counter()
            await _go_on(traffic, "warm-up", start_s + warmup_s, on_progress)
            warm_s = start_s + warmup_s
            steady = await _settle(traffic, warm_s, steady_timeout_s, on_progress)
            if (traffic.num_errors and not traffic.num_tokens) or (not steady and silence(traffic.answers)):
                window_s, steady = time.perf_counter() - start_s, False
            else:
                step_s = window_s
                window_s = _window_s(step_s, longest_s, traffic.speed(time.perf_counter()))
                watch.start()
                start_s = time.perf_counter()
                before = traffic.num_tokens
                if on_window_start is not None:
                    await on_window_start()
                await _go_on(traffic, "window", start_s + window_s, on_progress)
                while (
                    traffic.num_tokens - before < MIN_TOKENS
                    and window_s + step_s <= longest_s
                    and not _stays_silent(traffic, start_s, steady_timeout_s)
                ):
                    window_s += step_s
                    await _go_on(traffic, "window", start_s + window_s, on_progress)
                watch.stop()
                if on_window_end is not None:
                    await on_window_end()
                if not _stays_silent(traffic, start_s, steady_timeout_s):
                    await traffic.drain(start_s + window_s + drain_s)
            # before requests under way are cut off, which looks like an end
            silent = silence(traffic.answers) if _waited_s(traffic) >= min(steady_timeout_s, PINGS_TIMEOUT_S) else ""
        finally:
            watch.stop()
            await traffic.stop()
    samples = [_sample(request, start_s) for request in traffic.requests if _is_inside(request, start_s, window_s)]
    return LoadResult(window_s=window_s, samples=samples, health=watch.health(samples), steady=steady, silence=silent)


def _window_s(step_s: float, longest_s: float, tokens_per_s: float | None) -> float:
    """Whole times `step_s`, at most `longest_s`, for ENOUGH_TOKENS at that speed; once where the speed is not known."""
    if not tokens_per_s:
        return step_s
    times = math.ceil(ENOUGH_TOKENS / (tokens_per_s * step_s))
    return step_s * max(1, min(times, math.floor(longest_s / step_s + 1e-9)))


async def _go_on(traffic: Traffic, phase: _Phase, until_s: float, show: _Show) -> None:
    while (left_s := until_s - time.perf_counter()) > 0:
        traffic.check()
        _report(traffic, phase, left_s, show)
        await asyncio.sleep(min(left_s, _PROGRESS_S))


async def _settle(traffic: Traffic, since_s: float, timeout_s: float, show: _Show) -> bool:
    shown_s = -math.inf
    while (
        not (ready := traffic.check())
        and time.perf_counter() < since_s + timeout_s
        and not _stays_silent(traffic, since_s, timeout_s)
    ):
        if time.perf_counter() - shown_s >= _PROGRESS_S:
            shown_s = time.perf_counter()
            _report(traffic, "settling", 0.0, show)
        await asyncio.sleep(_POLL_S)
    return ready


def _stays_silent(traffic: Traffic, since_s: float, timeout_s: float) -> bool:
    """Whether no token has come at all, for as long as that is waited for: less long where pings are all that comes."""
    waited_s = time.perf_counter() - since_s
    if waited_s < min(timeout_s, PINGS_TIMEOUT_S):
        return False
    return bool(silence(traffic.answers)) and (waited_s >= timeout_s or only_pings(traffic.answers))


def _waited_s(traffic: Traffic) -> float:
    """How long ago the first request was sent. At a low rate that may be a moment, and then nothing is said by its silence."""
    started = [answer.start_s for answer in traffic.answers if answer.start_s is not None]
    return time.perf_counter() - min(started) if started else 0.0


def _report(traffic: Traffic, phase: _Phase, left_s: float, show: _Show) -> None:
    if show is not None:
        show(
            Progress(
                phase=phase,
                remaining_s=left_s,
                num_tokens=traffic.num_tokens,
                num_under_way=len(traffic.under_way),
                num_errors=traffic.num_errors,
            )
        )


def _is_inside(request: Request, start_s: float, window_s: float) -> bool:
    answer = request.answer
    if answer.start_s is None or answer.end_s is None:  # cancelled before it was sent
        return False
    return answer.end_s > start_s and request.scheduled_s < start_s + window_s


def _sample(request: Request, start_s: float) -> RequestSample:
    answer, stream = request.answer, request.answer.stream
    assert answer.start_s is not None
    assert answer.end_s is not None
    return RequestSample(
        index=request.index,
        prompt_id=request.prompt.id,
        kind=request.prompt.kind,
        scheduled_s=request.scheduled_s - start_s,
        start_s=answer.start_s - start_s,
        first_token_s=None if stream.first_token_s is None else stream.first_token_s - start_s,
        end_s=answer.end_s - start_s,
        prompt_tokens=stream.prompt_tokens,
        output_tokens=stream.output_tokens,
        finish_reason=stream.finish_reason,
        arrivals=tuple((time_s - start_s, num_tokens) for time_s, num_tokens in stream.arrivals),
        degenerate=None if answer.error is not None else degenerate_reason(stream.text, finished=stream.finish_reason is not None),
        error=answer.error,
        staggered=request.staggered,
        speculation=stream.speculation,
    )
