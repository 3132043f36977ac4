from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from breakeven.loadgen.measures import (
    decode_time_per_token,
    goodput,
    latencies,
    mean_under_way,
    num_errors,
    prefill_share,
    share_within,
    throughput,
    tokens_in_window,
    ttfts,
)
from breakeven.loadgen.samples import LoadResult, RequestSample

Sample = Callable[..., RequestSample]
Window = Callable[..., LoadResult]


def test_tokens_are_counted_between_the_edges(sample: Sample, window: Window) -> None:
    begun_before = sample(start_s=-1.0, arrivals=((-0.5, 3), (0.0, 5), (0.4, 9), (2.0, 11)))
    outlives = sample(arrivals=((1.9, 1), (2.1, 4)))
    silent = sample(arrivals=())
    outside = sample(arrivals=((2.5, 1), (3.0, 8)))
    result = window(2.0, begun_before, outlives, silent, outside)
    assert tokens_in_window(result) == (11 - 5) + 1
    assert throughput(result) == 3.5


def test_decode_time_uses_pairs_of_arrivals_inside(sample: Sample, window: Window) -> None:
    cut_on_both_sides = sample(arrivals=((-0.5, 3), (0.5, 6), (1.0, 8), (1.5, 12), (2.5, 20)))
    begins_inside = sample(arrivals=((0.2, 1), (0.8, 4)))
    one_arrival = sample(arrivals=((1.0, 7),))
    result = window(2.0, cut_on_both_sides, begins_inside, one_arrival)
    assert decode_time_per_token(result) == pytest.approx((1.0 + 0.6) / (6 + 3))
    assert math.isnan(decode_time_per_token(window(2.0, one_arrival)))


def test_ttft_counts_from_when_a_request_was_due(sample: Sample, window: Window) -> None:
    late = sample(scheduled_s=0.2, start_s=0.5, first_token_s=0.9)
    before = sample(scheduled_s=-1.0, start_s=-1.0, first_token_s=-0.1)
    crossing = sample(scheduled_s=-0.3, start_s=-0.3, first_token_s=0.1)
    after = sample(scheduled_s=1.5, start_s=1.5, first_token_s=2.1)
    never = sample(scheduled_s=0.0, first_token_s=None, arrivals=())
    assert ttfts(window(2.0, late, before, crossing, after, never)) == pytest.approx([0.7, 0.4])


def test_latency_is_that_of_whole_answers(sample: Sample, window: Window) -> None:
    whole = sample(scheduled_s=-0.5, end_s=1.0)
    result = window(
        2.0,
        whole,
        sample(end_s=1.0, staggered=True),
        sample(end_s=1.0, error="HTTP 500"),
        sample(end_s=2.0, finish_reason=None),
        sample(end_s=2.5),
    )
    assert latencies(result) == [1.5]
    assert num_errors(result) == 1


def test_goodput_counts_tokens_of_requests_within_both_limits(sample: Sample, window: Window) -> None:
    good = sample(scheduled_s=0.0, first_token_s=0.5, arrivals=((0.5, 1), (1.5, 11)))
    late = sample(scheduled_s=0.0, first_token_s=0.9, arrivals=((0.9, 1), (1.0, 6)))
    slow = sample(scheduled_s=0.0, first_token_s=0.5, arrivals=((0.5, 1), (1.5, 3)))
    failed = sample(scheduled_s=0.0, first_token_s=0.5, arrivals=((0.5, 1), (1.5, 11)), error="HTTP 500")
    cut = sample(scheduled_s=-3.0, first_token_s=-2.5, arrivals=((-2.5, 1), (-0.5, 21), (1.5, 41), (2.5, 42)))
    result = window(2.0, good, late, slow, failed, cut)
    assert goodput(result, 0.5, 0.1) == (11 + 20) / 2.0
    assert goodput(result, 0.5, None) == (11 + 3 + 20) / 2.0
    assert goodput(result, None, 0.1) == (11 + 6 + 20) / 2.0
    assert goodput(result, 0.1, None) == 0.0
    assert share_within(result, 0.5, 0.1) == 31 / (11 + 6 + 3 + 11 + 20)
    assert math.isnan(share_within(window(2.0), 0.5, 0.1))


def test_prefill_share_counts_time_inside(sample: Sample, window: Window) -> None:
    crossing = sample(scheduled_s=-1.0, start_s=-1.0, first_token_s=0.5, end_s=1.0)  # 0.5 of 1.0 inside
    cut = sample(scheduled_s=1.0, start_s=1.0, first_token_s=1.25, end_s=2.4)  # 0.25 of 1.0 inside
    waiting = sample(scheduled_s=1.5, start_s=1.5, first_token_s=None, end_s=2.4, arrivals=())  # 0.5 of 0.5
    failed = sample(error="HTTP 500")
    assert prefill_share(window(2.0, crossing, cut, waiting, failed)) == pytest.approx(1.25 / 2.5)
    assert math.isnan(prefill_share(window(2.0)))


def test_requests_under_way(sample: Sample, window: Window) -> None:
    result = window(2.0, sample(start_s=-1.0, end_s=3.0), sample(start_s=1.5, end_s=2.0), sample(start_s=0.0, end_s=0.5))
    assert mean_under_way(result) == pytest.approx(1.5)


def test_edges_do_not_bias(sample: Sample, window: Window) -> None:
    """A known process of bursts, cut at random places by windows hardly longer than a request: the truth comes back."""
    rng = random.Random(5)
    ttft_s, gap_s = 0.4, 0.1
    per_request_s, tokens, share = [], [], []
    for _ in range(1500):
        time_s, samples = -rng.uniform(4.0, 8.0), []
        while time_s < 3.0:
            begun_s, time_s = time_s, time_s + ttft_s
            arrivals, count = [(time_s, 1)], 1
            for _burst in range(rng.choice([4, 16])):
                time_s, count = time_s + gap_s, count + rng.choice([1, 3])
                arrivals.append((time_s, count))
            samples.append(sample(scheduled_s=begun_s, start_s=begun_s, first_token_s=arrivals[0][0], arrivals=tuple(arrivals)))
        result = window(3.0, *samples)
        per_request_s.append(decode_time_per_token(result))
        tokens.append(throughput(result))
        share.append(prefill_share(result))
    request_s = ttft_s + 10 * gap_s
    assert sum(per_request_s) / 1500 == pytest.approx(gap_s / 2, rel=0.02)
    assert sum(tokens) / 1500 == pytest.approx(21 / request_s, rel=0.02)
    assert sum(share) / 1500 == pytest.approx(ttft_s / request_s, rel=0.02)
