"""The reading of a window between two scrapes, or since the start of the server: acceptance, speed, load, what is odd."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from breakeven.findings import Finding, worst_first
from breakeven.readers.dumps import Window
from breakeven.readers.figures import known
from breakeven.readers.metrics.sglang import acceptance_from_gauges
from breakeven.readers.metrics.vllm import acceptance_from_counters
from breakeven.readers.reading import Reading
from breakeven.readers.speedup import with_speedup
from breakeven.versions import Version

__all__ = ["window_reading"]


def window_reading(
    window: Window, source: str, version: Version | None, draft_tokens: int | None, *, break_even: float | None = None
) -> Reading:
    """`version` and `draft_tokens` are what the user says, for gauges whose meaning depends on them."""
    findings = list(_window_findings(window))
    if window.engine == "sglang":
        acceptance, more = acceptance_from_gauges(window, version, draft_tokens)
    else:
        acceptance, more = acceptance_from_counters(window)
    acceptance, on_speed = with_speedup(acceptance, break_even)
    findings += [*more, *on_speed]
    generated = window.total(f"{window.engine}:generation_tokens")
    running, queued = (
        (f"{window.engine}:num_requests_running", f"{window.engine}:num_requests_waiting")
        if window.engine != "sglang"
        else ("sglang:num_running_reqs", "sglang:num_queue_reqs")
    )
    gauges = window.gauge("sglang:gen_throughput")
    throughput = generated / window.duration_s if window.duration_s > 0 else sum(gauges) if gauges else math.nan
    return Reading(
        source=source,
        kind="two scrapes" if window.is_difference else "scrape",
        engine="local" if "breakeven:decode_steps" in window.counters else window.engine,
        version=str(version) if version else None,
        num_lines=0,
        duration_s=known(window.duration_s),
        num_engines=max(1, len({dict(labels).get("engine", "") for samples in window.counters.values() for labels in samples})),
        acceptance=acceptance,
        throughput=known(throughput),
        running=known(_sum(window.gauge(running))),
        queued=known(_sum(window.gauge(queued))),
        findings=worst_first(findings),
    )


def _sum(values: Sequence[float]) -> float:
    return sum(values) if values else math.nan


def _window_findings(window: Window) -> Iterator[Finding]:
    if window.restarted:
        yield Finding(
            code="counters-restarted",
            severity="warning",
            confidence="high",
            title="Counters began again between the scrapes: what was counted before the restart is lost.",
            evidence=(f"restarted: {'; '.join(window.restarted[:8])}",),
            remedy="The figures are those since the restart, for these engines. If the scrapes were given in the wrong order, give "
            "the older one first.",
        )
    if window.vanished:
        yield Finding(
            code="engine-vanished",
            severity="warning",
            confidence="high",
            title="An engine of the first scrape is missing from the second: what it did is left out.",
            evidence=(f"missing: {'; '.join(window.vanished[:8])}",),
            remedy="Scrape again; see whether it died.",
        )
    if window.odd:
        yield Finding(
            code="counters-contradict",
            severity="error",
            confidence="high",
            title="Some counters hold what no counter can hold.",
            evidence=window.odd[:8],
            remedy="They are left out. Check the dump.",
        )
    if not window.is_difference and window.engine != "sglang":
        yield Finding(
            code="since-start",
            severity="info",
            confidence="high",
            title="One scrape: the figures are since the start of the server, warm-up and all traffic included.",
            remedy="Scrape twice and give both files: the difference is what happened between them.",
        )
