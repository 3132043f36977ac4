from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from breakeven.loadgen import run, traffic
from breakeven.loadgen.health import client_voids
from breakeven.loadgen.measures import decode_time_per_token, mean_under_way, throughput
from breakeven.loadgen.run import MIN_TOKENS, Progress, _window_s, run_load
from breakeven.loadgen.samples import LoadPoint, LoadResult


async def load(server: Any, prompts: Any, point: LoadPoint, **options: Any) -> LoadResult:
    usual = {"seed": 1, "warmup_s": 0.1, "window_s": 0.4}
    return await run_load(server.endpoint, point, prompts, **(usual | options))


async def test_closed_loop_keeps_every_slot_busy(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.004, tokens_per_chunk=2))
    result = await load(server, prompts, LoadPoint(concurrency=5, max_tokens=16), window_s=0.8)
    assert result.steady
    assert all(sample.error is None for sample in result.samples)
    assert server.peak == 5  # never more
    assert mean_under_way(result) > 4.5  # never fewer for long
    assert {tokens for sample in result.samples for _, tokens in sample.arrivals} <= set(range(17))
    assert max(sample.output_tokens for sample in result.samples) == 16
    assert 0.002 <= decode_time_per_token(result) < 0.01
    assert 0 < throughput(result) <= 5 / 0.002


async def test_the_window_cuts_requests_and_keeps_what_lies_outside(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.005))
    result = await load(server, prompts, LoadPoint(concurrency=3, max_tokens=10_000), warmup_s=0.2)
    assert len(result.samples) == 3
    for sample in result.samples:
        assert (sample.error, sample.finish_reason) == (None, None)
        assert sample.scheduled_s <= sample.start_s < 0 < result.window_s <= sample.end_s
        assert sample.arrivals[0][0] < 0
        assert sample.arrivals[-1][0] > result.window_s * 0.8
    for _ in range(100):
        if server.num_aborted == 3:
            break
        await asyncio.sleep(0.01)
    assert (server.num_aborted, server.under_way) == (3, 0)


async def test_samples_are_of_the_window_only(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.001))
    result = await load(server, prompts, LoadPoint(concurrency=2, max_tokens=4), warmup_s=0.3)
    assert min(sample.index for sample in result.samples) > 4
    assert all(sample.end_s > 0 and sample.scheduled_s < result.window_s for sample in result.samples)


async def test_first_answers_are_staggered(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.01))
    result = await load(server, prompts, LoadPoint(concurrency=4, max_tokens=20, fixed_length=True), warmup_s=0.0, window_s=0.5)
    assert [body["max_tokens"] for body in server.bodies[:4]] == [5, 10, 15, 20]
    assert {body["max_tokens"] for body in server.bodies[4:]} == {20}
    assert [sample.staggered for sample in result.samples[:5]] == [True, True, True, False, False]


async def test_the_window_waits_for_first_tokens(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(first_s=0.3))
    result = await load(server, prompts, LoadPoint(concurrency=2, max_tokens=1000), warmup_s=0.05, window_s=0.2)
    assert result.steady
    assert all(sample.first_token_s is not None and sample.first_token_s < 0 for sample in result.samples)


async def test_the_window_does_not_wait_for_ever(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(first_s=30.0))
    result = await load(server, prompts, LoadPoint(concurrency=2), warmup_s=0.05, window_s=0.2, steady_timeout_s=0.1)
    assert not result.steady
    assert [(sample.first_token_s, sample.output_tokens) for sample in result.samples] == [(None, 0)] * 2


async def test_pings_without_a_token_are_not_waited_for_as_long(
    serve: Any, script: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PINGS_TIMEOUT_S", 0.3)
    server = await serve(script(pings=10**6, interval_s=0.02))

    async def never() -> None:
        raise AssertionError("there is no window")

    begun_s = time.perf_counter()
    result = await load(server, prompts, LoadPoint(concurrency=2), warmup_s=0.05, window_s=30.0, on_window_start=never)
    assert time.perf_counter() - begun_s < 5
    assert not result.steady
    assert result.silence.startswith("2 requests got ")
    assert "without data (the first being ': ping') and not one event" in result.silence


async def test_pings_before_tokens_are_no_silence(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(pings=5, interval_s=0.01))
    result = await load(server, prompts, LoadPoint(concurrency=2, max_tokens=1000), warmup_s=0.05, window_s=0.2)
    assert (result.steady, result.silence) == (True, "")
    assert all(sample.output_tokens for sample in result.samples)


async def test_open_loop_without_a_token_ends_its_window(
    serve: Any, script: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PINGS_TIMEOUT_S", 0.3)
    server = await serve(script(pings=10**6, interval_s=0.02))
    begun_s = time.perf_counter()
    result = await load(server, prompts, LoadPoint(rate_per_s=20.0), warmup_s=0.05, window_s=0.4, max_window_s=3.2, drain_s=30.0)
    assert time.perf_counter() - begun_s < 5
    assert "not one event" in result.silence


async def test_a_request_that_was_just_sent_is_not_called_silent(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(first_s=30.0))
    result = await load(server, prompts, LoadPoint(rate_per_s=5.0), warmup_s=0.05, window_s=0.6)
    assert result.samples
    assert result.silence == ""


async def test_callbacks_run_at_the_edges_under_load(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.005))
    seen: list[tuple[str, float, int]] = []

    async def note(name: str) -> None:
        seen.append((name, time.perf_counter(), server.under_way))

    await load(
        server,
        prompts,
        LoadPoint(concurrency=3, max_tokens=500),
        on_window_start=lambda: note("start"),
        on_window_end=lambda: note("end"),
    )
    (first, start_s, busy_at_start), (last, end_s, busy_at_end) = seen
    assert (first, last, busy_at_start, busy_at_end) == ("start", "end", 3, 3)
    assert end_s - start_s == pytest.approx(0.4, abs=0.15)


async def test_a_callback_that_fails_stops_the_load(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.005))

    async def fail() -> None:
        raise RuntimeError("the server died")

    with pytest.raises(RuntimeError, match="the server died"):
        await load(server, prompts, LoadPoint(concurrency=3, max_tokens=500), on_window_start=fail)
    await asyncio.sleep(0.05)
    assert server.under_way == 0


async def test_cancelling_the_run_stops_the_load(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.005))
    run = asyncio.create_task(load(server, prompts, LoadPoint(concurrency=3, max_tokens=500), window_s=30.0))
    await asyncio.sleep(0.2)
    assert server.under_way == 3
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await asyncio.sleep(0.05)
    assert server.under_way == 0


async def test_failures_are_samples_and_do_not_spin(serve: Any, script: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "PAUSE_AFTER_ERROR_S", 0.05)
    server = await serve(script(interval_s=0.001, cut_after=3))
    result = await load(server, prompts, LoadPoint(concurrency=2, max_tokens=8))
    assert result.steady
    ended = [sample for sample in result.samples if sample.end_s < result.window_s]
    assert {sample.error for sample in ended} == {"connection lost after 3 tokens"}
    assert len(server.bodies) <= 2 * (0.5 / 0.05 + 3)


async def test_no_window_where_nothing_works(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(status=401))

    async def never() -> None:
        raise AssertionError("there is no window")

    begun_s = time.perf_counter()
    result = await load(
        server, prompts, LoadPoint(concurrency=2), warmup_s=0.1, window_s=30.0, on_window_start=never, on_window_end=never
    )
    assert time.perf_counter() - begun_s < 5
    assert not result.steady
    assert [sample.error for sample in result.samples] == ["HTTP 401 Unauthorized: out of order"] * 2


async def test_open_loop_sends_at_its_own_times(serve: Any, script: Any, prompts: Any) -> None:
    """A server too slow for the rate does not slow the client down, and the waiting shows."""
    server = await serve(script(first_s=0.25, interval_s=0.0))
    result = await load(server, prompts, LoadPoint(rate_per_s=60.0, max_tokens=2), window_s=0.6, drain_s=1.0)
    in_window = [sample for sample in result.samples if sample.scheduled_s >= 0]
    assert 20 <= len(in_window) <= 55
    assert server.peak > 8
    assert all(sample.finish_reason == "length" for sample in result.samples)  # drained


async def test_arms_of_a_block_meet_the_same_traffic(serve: Any, script: Any, prompts: Any) -> None:
    async def meet(seed: int) -> tuple[list[str], list[float]]:
        server = await serve(script(interval_s=0.0))
        result = await load(server, prompts, LoadPoint(rate_per_s=80.0, max_tokens=2), seed=seed, warmup_s=0.0, drain_s=0.5)
        # in the order in which they were due: two that are due at nearly the same time may arrive the other way round
        sent = sorted(result.samples, key=lambda sample: sample.index)[:15]
        return [sample.prompt_id for sample in sent], [round(sample.scheduled_s - sent[0].scheduled_s, 6) for sample in sent]

    first, again, other = await meet(3), await meet(3), await meet(4)
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


async def test_no_coordinated_omission(serve: Any, script: Any, prompts: Any) -> None:
    """A client that freezes sends late; the delay is in the times to first token and in the health that voids the trial."""
    server = await serve(script(interval_s=0.0))
    frozen = []

    def freeze(progress: Progress) -> None:
        if progress.phase == "window" and not frozen:
            frozen.append(True)
            time.sleep(0.3)

    result = await load(server, prompts, LoadPoint(rate_per_s=50.0, max_tokens=1), window_s=0.6, drain_s=0.5, on_progress=freeze)
    late = [sample for sample in result.samples if 0 < sample.scheduled_s < 0.1]
    assert late
    assert all(sample.first_token_s is not None and sample.first_token_s - sample.scheduled_s > 0.15 for sample in late)
    assert any("requests sent" in void.detail for void in client_voids(result.health, result.samples))


async def test_progress_is_told(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(first_s=0.3, interval_s=0.005))
    told: list[Progress] = []
    await load(server, prompts, LoadPoint(concurrency=2, max_tokens=500), window_s=0.6, on_progress=told.append)
    assert list(dict.fromkeys(progress.phase for progress in told)) == ["warm-up", "settling", "window"]
    in_window = [progress for progress in told if progress.phase == "window"]
    assert [progress.remaining_s for progress in in_window] == sorted((p.remaining_s for p in in_window), reverse=True)
    assert in_window[-1].num_tokens > in_window[0].num_tokens > 0
    assert in_window[-1].num_under_way == 2


async def test_degenerate_answers_are_marked(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.0, text="again "))
    result = await load(server, prompts, LoadPoint(concurrency=1, max_tokens=60), window_s=0.3)
    ended = [sample for sample in result.samples if sample.finish_reason is not None]
    assert ended
    assert {sample.degenerate for sample in ended} == {"loop: again"}


async def test_usage_at_the_end_only(serve: Any, script: Any, prompts: Any) -> None:
    server = await serve(script(interval_s=0.004, usage="end"))
    result = await load(server, prompts, LoadPoint(concurrency=2, max_tokens=10), window_s=0.6)
    ended = [sample for sample in result.samples if sample.finish_reason is not None and not sample.staggered]
    assert ended
    assert all([tokens for _, tokens in sample.arrivals] == [1, 10] for sample in ended)
    assert 0.004 <= decode_time_per_token(result) < 0.02


async def test_a_slow_server_gets_a_longer_window(serve: Any, script: Any, prompts: Any) -> None:
    point = LoadPoint(concurrency=1, max_tokens=10_000)
    slow = await serve(script(interval_s=0.03))
    # about 33 tokens a second before the window opens: 32 of them take longer than the most it may have
    result = await load(slow, prompts, point, warmup_s=0.4, window_s=0.2, max_window_s=0.65)
    assert result.window_s == pytest.approx(0.6)  # whole times
    assert result.samples[0].arrivals[-1][0] > 0.5
    # nothing known before: longer until 16 have come
    ends: list[float] = []

    async def end() -> None:
        ends.append(time.perf_counter())

    result = await load(slow, prompts, point, warmup_s=0.0, window_s=0.2, max_window_s=5.0, on_window_end=end)
    assert 0.4 <= result.window_s <= 1.6
    assert len(ends) == 1
    assert sum(0 < time_s <= result.window_s for time_s, _ in result.samples[0].arrivals) >= MIN_TOKENS - 1
    # unless nobody said that it may
    assert (await load(slow, prompts, point, warmup_s=0.0, window_s=0.2)).window_s == 0.2
    fast = await serve(script(interval_s=0.002))
    assert (await load(fast, prompts, point, warmup_s=0.2, window_s=0.4, max_window_s=5.0)).window_s == 0.4


@pytest.mark.parametrize(
    ("tokens_per_s", "window_s"), [(None, 2.0), (0.0, 2.0), (1000.0, 2.0), (16.0, 2.0), (15.9, 4.0), (5.0, 8.0), (1.0, 16.0)]
)
def test_how_long_a_window_is(tokens_per_s: float | None, window_s: float) -> None:
    assert _window_s(2.0, 17.0, tokens_per_s) == window_s
