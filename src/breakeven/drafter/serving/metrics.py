"""What the server says about itself: Prometheus text under vLLM's names, and vLLM's two log lines every ten seconds."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from breakeven.drafter.serving.requests import CoreStats

__all__ = ["Exposition", "IntervalLog"]

logger = logging.getLogger(__name__)

# vLLM's label for the engine replica: there is one here.
ENGINE = "0"


class Exposition(Collector):
    """`read_stats` is called at each scrape; `finished` counts requests by the reason they ended for (stop, length, abort)."""

    def __init__(self, read_stats: Callable[[], CoreStats], *, model_name: str, speculating: bool) -> None:
        self._read_stats = read_stats
        self._labels = {"model_name": model_name, "engine": ENGINE}
        self._speculating = speculating
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "abort": 0})
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # CPU time and memory of this process

    def text(self) -> bytes:
        """Prometheus text format 0.0.4."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        return []  # so that registering does not collect

    def collect(self) -> Iterator[Metric]:
        """One family for each figure, from one reading of the counters."""
        stats = self._read_stats()
        acceptance = stats.acceptance
        yield self._gauge("vllm:num_requests_running", "Requests in the running batch.", stats.num_running)
        yield self._gauge("vllm:num_requests_waiting", "Requests waiting for a slot.", stats.num_waiting)
        yield self._counter("vllm:prompt_tokens", "Prompt tokens prefilled.", stats.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens generated.", stats.generation_tokens)
        success = CounterMetricFamily(
            "vllm:request_success", "Requests ended, by reason.", labels=[*self._labels, "finished_reason"]
        )
        for reason, count in self.finished.items():
            success.add_metric([*self._labels.values(), reason], count)
        yield success
        yield self._counter(
            "breakeven:decode_steps", "Decode forwards summed over requests, with drafts or without.", acceptance.num_steps
        )
        yield self._counter("breakeven:near_ties", "Greedy choices between two logits closer than 1e-4.", stats.near_ties)
        if not self._speculating:
            return
        yield self._counter("vllm:spec_decode_num_drafts", "Request steps that carried drafts.", acceptance.num_rounds)
        yield self._counter("vllm:spec_decode_num_draft_tokens", "Draft tokens verified.", acceptance.num_drafted)
        yield self._counter("vllm:spec_decode_num_accepted_tokens", "Draft tokens accepted.", acceptance.num_accepted)
        positions = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted, by position.",
            labels=[*self._labels, "position"],
        )
        for position, count in enumerate(acceptance.accepted_per_position):
            positions.add_metric([*self._labels.values(), str(position)], count)
        yield positions

    def _gauge(self, name: str, documentation: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, documentation, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, documentation: str, value: float) -> Metric:
        family = CounterMetricFamily(name, documentation, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family


class IntervalLog:
    """Rates between two calls of `write`, in the words of vLLM's log (0.10.2 and later). Silent while nothing happens."""

    def __init__(self, stats: CoreStats, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = stats
        self._since_s = clock()
        self._was_idle = True

    def write(self, stats: CoreStats) -> None:
        before, now_s = self._before, self._clock()
        interval_s = now_s - self._since_s
        self._before, self._since_s = stats, now_s
        prompt_tokens = stats.prompt_tokens - before.prompt_tokens
        generation_tokens = stats.generation_tokens - before.generation_tokens
        idle = not (prompt_tokens or generation_tokens or stats.num_running or stats.num_waiting)
        if idle and self._was_idle:
            return
        self._was_idle = idle
        logger.info(
            "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, "
            "Running: %d reqs, Waiting: %d reqs",
            prompt_tokens / interval_s,
            generation_tokens / interval_s,
            stats.num_running,
            stats.num_waiting,
        )
        window = stats.acceptance.since(before.acceptance)
        if window.num_rounds:
            logger.info(
                "SpecDecoding metrics: Mean acceptance length: %.2f, Accepted throughput: %.2f tokens/s, "
                "Drafted throughput: %.2f tokens/s, Accepted: %d tokens, Drafted: %d tokens, "
                "Per-position acceptance rate: %s, Avg Draft acceptance rate: %.1f%%",
                window.per_round_length,
                window.num_accepted / interval_s,
                window.num_drafted / interval_s,
                window.num_accepted,
                window.num_drafted,
                ", ".join(f"{rate:.3f}" for rate in window.joint),
                100 * window.draft_acceptance,
            )
