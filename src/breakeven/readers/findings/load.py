"""What the log says about load: a queue that never empties, CUDA graphs off, memory that ran out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from breakeven.engines.version_facts import admission_defaults, admission_flag
from breakeven.findings import Finding
from breakeven.readers.series import Floats, Mask
from breakeven.readers.study import Study, mean_of

__all__ = ["load", "queue"]

SATURATED_SHARE = 0.5
AT_LIMIT_SHARE = 0.9
GRAPH_OFF_SHARE = 0.05


def load(one: Study) -> Iterator[Finding]:
    columns = one.columns
    running, queued = columns["running"], columns["queued"]
    known = np.isfinite(queued) & np.isfinite(running) & (running > 0)
    if known.sum() >= 3:
        waiting = float((queued[known] > 0).mean())
        finding = queue(
            one.section.engine,
            one.section.settings.get("max_running_requests") or one.section.settings.get("max_num_seqs"),
            float(running[known].max()),
            mean_of(queued[known]),
            waiting,
            float((running[known] >= 0.95 * running[known].max()).mean()),
            is_speculative=bool(one.overall.num_lines),
            is_capped=any(event.kind == "cap on running requests" for event in one.section.events),
        )
        if finding is not None:
            yield finding
    yield from _graphs(one)
    retracted = sum(event.kind == "requests retracted" for event in one.section.events)
    if retracted:
        yield Finding(
            code="kv-cache-full",
            severity="warning",
            confidence="high",
            title="Requests were put back because the KV cache was full: throughput of these lines is not the engine's best.",
            evidence=(f"{retracted} lines say so", f"KV cache at most {float(np.nanmax(columns['kv_usage'])) * 100:.0f} % full")
            if np.isfinite(columns["kv_usage"]).any()
            else (f"{retracted} lines say so",),
            remedy="Fewer running requests, shorter contexts or more memory for the cache. The drafter and its cache "
            "take memory too: "
            "compare arms at equal running requests.",
        )


def queue(
    engine: str,
    limit: str | None,
    most_running: float,
    mean_queued: float,
    share_waiting: float,
    share_at_limit: float,
    *,
    is_speculative: bool,
    is_capped: bool = False,
) -> Finding | None:
    if share_waiting < SATURATED_SHARE or share_at_limit < SATURATED_SHARE:
        return None
    caps = {row.speculative_cap for row in admission_defaults(engine, None) if row.speculative_cap}
    by_default = is_speculative and (is_capped or most_running in caps)
    flag = admission_flag(engine)
    reason = f"requests wait on {share_waiting * 100:.0f} % of the lines, {mean_queued:.1f} of them on average"
    at = f"{share_at_limit * 100:.0f} % of the lines run at most {most_running:.0f} requests, never more"
    return Finding(
        code="admission-capped" if by_default else "queue-saturated",
        severity="warning",
        confidence="high",
        title=f"The queue never empties: {most_running:.0f} requests run and the others wait"
        + (f", which is {engine}'s own limit whenever speculation is on and {flag} is not set." if by_default else "."),
        evidence=(reason, at, *((f"limit in the banner: {limit}",) if limit else ())),
        remedy=f"Set {flag} to the same number on every arm that is compared: a plain server has no such limit, so the "
        f"comparison is "
        "unfair above it. Time to first token is queueing here, not prefill."
        if by_default
        else f"Throughput is that of {most_running:.0f} running requests whatever the load offered. Raise {flag} if "
        f"memory allows, or "
        "compare arms at this batch; judge latency at a load that does not queue.",
    )


def _graphs(one: Study) -> Iterator[Finding]:
    graph, running = one.columns["graph"], one.columns["running"]
    known = np.isfinite(graph) & (running > 0)
    if known.sum() < 3:
        return
    off = known & (graph < 0.5)
    share = float(off.sum() / known.sum())
    if share < GRAPH_OFF_SHARE:
        return
    on = known & ~off
    settings = one.section.settings
    limit = settings.get("cuda_graph_max_bs_decode") or settings.get("cuda_graph_max_bs")
    threshold = math.nan
    if on.any() and running[off].min() > running[on].max():
        threshold = float(running[off].min())
    disabled = settings.get("disable_cuda_graph") == "True"
    where = f"from batch {threshold:.0f} on" if math.isfinite(threshold) else f"on {share * 100:.0f} % of the lines"
    evidence = [f"{int(off.sum())} of {int(known.sum())} decode lines without graphs, at batch {_span(running[off])}"]
    if on.any():
        evidence.append(f"with graphs at batch {_span(running[on])}")
        slow, fast = (_per_request(one, lines) for lines in (off, on))
        if math.isfinite(slow) and math.isfinite(fast):
            evidence.append(f"tok/s a request: {fast:.1f} with graphs, {slow:.1f} without (other batches too)")
    if disabled:
        evidence.append("disable_cuda_graph=True in the banner")
    if limit:
        evidence.append(f"captured up to batch {limit} by the banner")
    yield Finding(
        code="cuda-graph-off",
        severity="warning",
        confidence="high",
        title=f"CUDA graphs are off {where}: each decode step pays for launching its kernels one by one.",
        evidence=tuple(evidence),
        remedy="Start without the flag that disables them, and compare again."
        if disabled
        else "Capture graphs up to the largest batch that is served (SGLang: --cuda-graph-max-bs, later "
        "--cuda-graph-max-bs-decode; "
        "vLLM: --max-cudagraph-capture-size, counted in tokens: batch x (drafts + 1)). Until then accept length is "
        "right, and speed "
        "at these batches is not speculation's fault.",
    )


def _span(values: Floats) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _per_request(one: Study, lines: Mask) -> float:
    steady = lines & one.steady
    return mean_of(one.columns["throughput"][steady] / one.columns["running"][steady])
