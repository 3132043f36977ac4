"""Measures of one window: pure functions of raw samples, all in seconds and tokens, all free of what the window's edges cut.

A `Window` is anything with `window_s` and `samples` (a LoadResult, a trial). The window is (0, W]; n_r(t) is the number of tokens
of request r that had arrived by t. NaN where a window holds nothing to measure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Protocol

from breakeven.loadgen.samples import RequestSample

__all__ = [
    "Window",
    "decode_time_per_token",
    "goodput",
    "latencies",
    "mean_under_way",
    "num_errors",
    "prefill_share",
    "share_within",
    "throughput",
    "tokens_in_window",
    "ttfts",
]


class Window(Protocol):
    @property
    def window_s(self) -> float: ...

    @property
    def samples(self) -> Sequence[RequestSample]: ...


def tokens_in_window(window: Window) -> int:
    """sum_r n_r(W) - n_r(0): output tokens that arrived in the window, whatever became of their request."""
    return sum(_tokens_by(sample, window.window_s) - _tokens_by(sample, 0.0) for sample in window.samples)


def throughput(window: Window) -> float:
    """tokens_in_window / W, in output tokens per second of the whole server."""
    return tokens_in_window(window) / window.window_s


def decode_time_per_token(window: Window) -> float:
    """Seconds per output token of one request while it decodes: sum_r (t_last - t_first) / sum_r (n_r(t_last) - n_r(t_first)).

    t_first and t_last are a request's first and last arrival inside the window, the first token being an arrival like any other: so
    prefill is left out, and a request that the window cuts on either side counts with the part that lies inside. Sums are divided
    after adding up, which weighs every token alike.
    """
    seconds, tokens = [], 0
    for sample in window.samples:
        begin, end = (bisect_right(sample.arrivals, time_s, key=itemgetter(0)) for time_s in (0.0, window.window_s))
        if end - begin > 1:
            (first_s, first), (last_s, last) = sample.arrivals[begin], sample.arrivals[end - 1]
            seconds.append(last_s - first_s)
            tokens += last - first
    return math.fsum(seconds) / tokens if tokens else math.nan


def goodput(window: Window, ttft_s: float | None, tpot_s: float | None) -> float:
    """Output tokens per second of the window that belong to requests within the limits, as far as the window shows them.

    A request is within them if its first token came at most `ttft_s` after it was due, its later ones took at most `tpot_s` each on
    average, and it did not fail. Requests that the window cuts count with their tokens inside, as in `throughput`, so that the two
    are equal where every limit is met.
    """
    tokens = sum(
        _tokens_by(sample, window.window_s) - _tokens_by(sample, 0.0)
        for sample in window.samples
        if _within(sample, ttft_s, tpot_s, window.window_s)
    )
    return tokens / window.window_s


def share_within(window: Window, ttft_s: float | None, tpot_s: float | None) -> float:
    """The share of the window's tokens that `goodput` counts; NaN where there is none."""
    tokens = tokens_in_window(window)
    return goodput(window, ttft_s, tpot_s) * window.window_s / tokens if tokens else math.nan


def ttfts(window: Window) -> list[float]:
    """first token - scheduled, for the requests whose first token lies in the window.

    Counted from the time a request was due, so that a server (or client) that falls behind cannot hide it (coordinated omission).
    """
    return [
        sample.first_token_s - sample.scheduled_s
        for sample in window.samples
        if sample.first_token_s is not None and 0.0 < sample.first_token_s <= window.window_s
    ]


def latencies(window: Window) -> list[float]:
    """end - scheduled, for the whole answers that were completed in the window (staggered first requests are no whole answers)."""
    return [
        sample.end_s - sample.scheduled_s
        for sample in window.samples
        if sample.error is None
        and sample.finish_reason is not None
        and not sample.staggered
        and 0.0 < sample.end_s <= window.window_s
    ]


def prefill_share(window: Window) -> float:
    """Prefill's share p of request time: sum_r |[scheduled, first token] ∩ W| / sum_r |[scheduled, end] ∩ W|.

    In a steady closed loop this equals E[ttft] / E[ttft + decode] (renewal-reward), while the same ratio over completed requests
    would favour short ones. Queueing at the server is part of it: the first token does not come sooner for being queued.
    """
    before, whole = [], []
    for sample in window.samples:
        if sample.error is None:
            until_s = sample.end_s if sample.first_token_s is None else sample.first_token_s
            before.append(_overlap(sample.scheduled_s, until_s, window.window_s))
            whole.append(_overlap(sample.scheduled_s, sample.end_s, window.window_s))
    whole_s = math.fsum(whole)
    return math.fsum(before) / whole_s if whole_s > 0 else math.nan


def mean_under_way(window: Window) -> float:
    """Requests under way as the client sees them, averaged over the window's time (queued at the server or running)."""
    return math.fsum(_overlap(sample.start_s, sample.end_s, window.window_s) for sample in window.samples) / window.window_s


def num_errors(window: Window) -> int:
    """Requests that failed in the window."""
    return sum(sample.error is not None and 0.0 < sample.end_s <= window.window_s for sample in window.samples)


def _within(sample: RequestSample, ttft_s: float | None, tpot_s: float | None, window_s: float) -> bool:
    if sample.error is not None or sample.first_token_s is None:
        return False
    if ttft_s is not None and sample.first_token_s - sample.scheduled_s > ttft_s:
        return False
    seen = [arrival for arrival in sample.arrivals if arrival[0] <= window_s]
    if tpot_s is None or len(seen) < 2:
        return True
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    return last_s - first_s <= tpot_s * (last - first)


def _tokens_by(sample: RequestSample, time_s: float) -> int:
    place = bisect_right(sample.arrivals, time_s, key=itemgetter(0))
    return sample.arrivals[place - 1][1] if place else 0


def _overlap(start_s: float, end_s: float, window_s: float) -> float:
    return max(0.0, min(end_s, window_s) - max(start_s, 0.0))
