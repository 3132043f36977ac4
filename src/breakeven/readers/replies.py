"""Answers of servers as JSON, kept by a client: what each reports of its drafts (SGLang's `meta_info`, vLLM's per-request metrics),
and SGLang's `/server_info`, which holds an average since its start.

One document, an array of them, or one a line. Whatever else is in them is left alone; text of users is never looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from breakeven.acceptance import Acceptance
from breakeven.engines.sglang.meta_info import META_INFO_FIELDS, TOKENS, meta_info_acceptance
from breakeven.engines.sglang.meta_info import ROUNDS as SGLANG_ROUNDS
from breakeven.engines.vllm.request_metrics import ROUNDS as VLLM_ROUNDS
from breakeven.engines.vllm.request_metrics import request_metrics_acceptance
from breakeven.errors import EngineError, UsageError
from breakeven.findings import Finding
from breakeven.readers.findings.curve import ceiling, floor
from breakeven.readers.reading import AcceptanceFound, Reading
from breakeven.readers.speedup import with_speedup
from breakeven.stats.ratios import clustered_ratio
from breakeven.versions import Version

__all__ = ["are_replies", "reply_readings"]

MAX_BYTES = 64_000_000
MAX_DEPTH = 8
AVERAGE = "avg_spec_accept_length"
_KEYS = (SGLANG_ROUNDS, VLLM_ROUNDS, AVERAGE)


def are_replies(head: bytes) -> bool:
    """Whether a file that begins so is JSON with one of the fields in it; logs in JSON have none of them."""
    return head.lstrip()[:1] in (b"{", b"[") and any(f'"{key}"'.encode() in head for key in _KEYS)


def reply_readings(content: bytes, source: str, *, break_even: float | None = None) -> list[Reading]:
    """A reading for the requests of each engine together, and one for an average that a server states.

    Raises:
        UsageError: too large, or counts that are none.
    """
    if len(content) > MAX_BYTES:
        raise UsageError(f"{source}: more than {MAX_BYTES // 1_000_000} MB of replies; give fewer of them")
    requests: dict[str, list[Acceptance]] = {"sglang": [], "vllm": []}
    has_drafted, averages, versions, odd = True, [], [], 0
    for document in _documents(content):
        for holder, reported in _found(document, {}, 0):
            try:
                if SGLANG_ROUNDS in reported:
                    found = meta_info_acceptance([{TOKENS: _tokens(holder), **reported}])
                    has_drafted &= any(row.drafted is not None and row.drafted in reported for row in META_INFO_FIELDS)
                    requests["sglang"] += [found] if found is not None else []
                elif VLLM_ROUNDS in reported:
                    found = request_metrics_acceptance(reported, _tokens(holder))
                    requests["vllm"] += [found] if found is not None else []
                elif isinstance(average := reported[AVERAGE], (int, float)) and math.isfinite(average) and average >= 1.0:
                    averages.append(float(average))
                    versions.append(str(holder.get("version", "")))
            except EngineError:
                odd += 1
    readings = [
        _of_requests(engine, counts, source, odd, has_drafted or engine != "sglang", break_even)
        for engine, counts in requests.items()
        if counts
    ]
    if averages:
        readings.append(_of_averages(averages, versions[-1], source, break_even))
    if not readings:
        raise UsageError(f"{source}: no reply in it says how many drafts were accepted{f'; {odd} say nonsense' if odd else ''}")
    return readings


def _documents(content: bytes) -> Iterator[Any]:
    """The one document, or one a line; lines that are no JSON say nothing."""
    try:
        yield json.loads(content)
        return
    except (ValueError, RecursionError):
        pass
    for line in content.splitlines():
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _found(value: Any, holder: Mapping[str, Any], depth: int) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(the reply around it, the object that holds a field) wherever one is; the outermost object with a usage is the reply."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        around = value if not holder or "usage" in value else holder
        if any(key in value for key in _KEYS):
            yield around, value
        for inner in value.values():
            if isinstance(inner, (dict, list)):
                yield from _found(inner, around, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            # replies in an array each hold their own usage
            yield from _found(inner, holder if depth else {}, depth + 1 if depth else 0)


def _tokens(holder: Mapping[str, Any]) -> int:
    usage = holder.get("usage")
    count = usage.get(TOKENS) if isinstance(usage, dict) else None
    return count if type(count) is int and count > 0 else 0


def _of_requests(
    engine: str, counts: list[Acceptance], source: str, odd: int, has_drafted: bool, break_even: float | None
) -> Reading:
    total = sum(counts[1:], start=counts[0])
    per_round = total.num_drafted / total.num_rounds if has_drafted and total.num_rounds else math.nan
    drafts = len(total.accepted_per_position) or (round(per_round) if math.isfinite(per_round) else 0) or None
    means = [one.per_round_length for one in counts if one.num_rounds]
    # rounds of one reply are alike, so replies count and not their rounds
    spread = clustered_ratio([float(one.num_accepted) for one in counts], [float(one.num_rounds) for one in counts])
    found = AcceptanceFound(
        accept_length=_known(total.per_round_length),
        uncertainty=_known((spread.high - spread.low) / 2),
        mean_of_lines=sum(means) / len(means) if means else None,
        per_step=_known(total.accept_length),
        draft_acceptance=_known(total.draft_acceptance) if has_drafted else None,
        num_drafted=drafts,
        joint=total.joint,
        conditional=tuple(_known(rate) for rate in total.conditional),
        drafted_share=_known(total.drafted_share),
        rounds=float(total.num_rounds),
        drafted=float(total.num_drafted) if has_drafted else None,
        accepted=float(total.num_accepted),
        basis="counts of replies",
        formula_status="not needed",
    )
    findings = [finding for finding in (floor(total.per_round_length, total.num_rounds, f"{len(counts)} replies"),) if finding]
    if drafts and not findings and (full := ceiling(total.per_round_length, drafts, min(means), f"{len(counts)} replies")):
        findings.append(full)
    if odd:
        findings.append(
            Finding(
                code="lines-not-understood",
                severity="warning",
                confidence="high",
                title=f"{odd} replies hold counts that are none; they are left out.",
                evidence=(source,),
                remedy="Look at them: are they of one engine, and whole?",
            )
        )
    return _reading(engine, None, source, len(counts), found, findings, break_even)


def _of_averages(averages: list[float], version: str, source: str, break_even: float | None) -> Reading:
    mean = sum(averages) / len(averages)
    found = AcceptanceFound(
        accept_length=mean,
        basis="an average of the server's own since its start or last flush",
        formula_status="not printed",
    )
    finding = floor(mean, 1000.0, f"{AVERAGE} of /server_info")
    return _reading("sglang", version, source, 0, found, [finding] if finding is not None else [], break_even)


def _reading(
    engine: str,
    version: str | None,
    source: str,
    num_replies: int,
    found: AcceptanceFound,
    findings: list[Finding],
    break_even: float | None,
) -> Reading:
    judged, on_speed = with_speedup(found, break_even)
    try:
        release = str(Version.parse(version)) if version else None
    except ValueError:
        release = None
    return Reading(
        source=source,
        kind="replies",
        engine=engine,
        version=release,
        num_lines=num_replies,
        acceptance=judged,
        findings=(*findings, *on_speed),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
