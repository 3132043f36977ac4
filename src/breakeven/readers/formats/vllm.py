"""vLLM's lines. Every ten seconds an engine prints its load, and after it what its drafts did:

    Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 456.7 tokens/s, Running: 8 reqs, Waiting: 0 reqs,
    ... SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 30.00 tokens/s, Drafted throughput: 60.00 tokens/s,
        Accepted: 300 tokens, Drafted: 600 tokens, Per-position acceptance rate: 0.700, 0.500, 0.300, Avg Draft acceptance rate:
        50.0%

Releases differ in the order of the fields (up to 0.9.2 the rate comes first), so each is found by name. Source:
v1/metrics/loggers.py and v1/spec_decode/metrics.py.

The engine before V1 prints its drafts with counts since the start of the server instead:

    Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, Number of speculative tokens: 3,
        Number of accepted tokens: 8547, Number of draft tokens: 13311, Number of emitted tokens: 10616.

Its rate also counts drafts that were right after a wrong one, which no step keeps, so it is no acceptance: what a step gave is
emitted / rounds with rounds = drafted / k. Source: spec_decode/metrics.py of 0.4 to 0.9.
"""

from __future__ import annotations

import itertools
import math
import re

from breakeven.readers.clock import Clock
from breakeven.readers.formats.base import LineReader, bounded
from breakeven.readers.sections import Section, row

__all__ = ["VllmFormat"]

_USUAL_LOAD = re.compile(
    rb"(?:\([^)\n]{1,60}\) )?INFO (\d\d-\d\d \d\d:\d\d):(\d\d) \[[^\]\n]{1,60}\] Engine (\d{1,4}): "
    rb"Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput: ([\d.]{1,14}) tokens/s, Running: (\d{1,7}) reqs, "
    rb"Waiting: (\d{1,7}) reqs, [GC]PU KV cache usage: ([\d.]{1,8})%"
)
_USUAL_DRAFTS = re.compile(
    rb"(?:\([^)\n]{1,60}\) )?INFO (\d\d-\d\d \d\d:\d\d):(\d\d) \[[^\]\n]{1,60}\] SpecDecoding metrics: "
    rb"Mean acceptance length: ([\d.]{1,8}), Accepted throughput: ([\d.]{1,14}) tokens/s, "
    rb"Drafted throughput: ([\d.]{1,14}) tokens/s, Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    rb"Per-position acceptance rate: (\d[\d., ]{0,2000}), Avg Draft acceptance rate: ([\d.]{1,8})%"
)
_LOAD = {
    "throughput": re.compile(rb"Avg generation throughput: ([\d.]+)"),
    "running": re.compile(rb"Running: (\d+) reqs"),
    "queued": re.compile(rb"(?:Waiting|Pending): (\d+) reqs"),
    "kv_usage": re.compile(rb"KV cache usage: ([\d.]+)%"),
}
_PREEMPTIONS = re.compile(rb"Preemptions: (\d+)")
_ENGINE = re.compile(rb"Engine (\d{1,4}): ")
_LENGTH = re.compile(rb"Mean acceptance length: ([\d.]+)")
_RATE = re.compile(rb"[Dd]raft acceptance rate: ([\d.]+)%")
_ACCEPTED = re.compile(rb"Accepted: (\d+) tokens")
_DRAFTED = re.compile(rb"Drafted: (\d+) tokens")
_THROUGHPUTS = (
    re.compile(rb"Drafted throughput: ([\d.]+) tokens/s"),
    re.compile(rb"Accepted throughput: ([\d.]+) tokens/s"),
)
_POSITIONS = re.compile(rb"Per-position acceptance rate: (\d[\d.]*(?:, \d[\d.]*)*)")
_SINCE_START = {
    "depth": re.compile(rb"Number of speculative tokens: (\d{1,3})\b"),
    "drafted": re.compile(rb"Number of draft tokens(?: tokens)?: (\d{1,15})\b"),
    "emitted": re.compile(rb"Number of emitted tokens(?: tokens)?: (\d{1,15})\b"),
}
_SETTINGS = {
    "method": re.compile(rb"method='?([\w-]{1,40})'?|'method': '([\w-]{1,40})'"),
    "num_speculative_tokens": re.compile(rb"num_spec(?:ulative)?_tokens'?[=:] ?(\d{1,3})"),
    "drafts_by_batch": re.compile(rb"num_speculative_tokens_per_batch_size'?[=:] ?(\[[\[\]\d, ]{1,300})"),
    "max_num_seqs": re.compile(rb"max_num_seqs'?[=:] ?(\d{1,6})"),
    "tensor_parallel_size": re.compile(rb"(?<![a-z_])tensor_parallel_size'?[=:] ?(\d{1,4})"),
    "enable_prefix_caching": re.compile(rb"enable_prefix_caching'?[=:] ?(True|False)"),
    "kv_cache_dtype": re.compile(rb"kv_cache_dtype'?[=:] ?'?([\w]{1,40})"),
    "enforce_eager": re.compile(rb"enforce_eager'?[=:] ?(True|False)"),
    "attention_backend": re.compile(rb"attention_backend'?[=:] ?'?([\w.]{1,60})"),
    "quantization": re.compile(rb"\bquantization'?[=:] ?'?([\w-]{1,40})"),
    "rejection_sample_method": re.compile(rb"rejection_sample_method'?[=:] ?'?(\w{1,40})"),
}
# How Breakeven's own engine, whose lines are worded like these, begins its log.
EMBEDDED_BANNER = b"Breakeven's embedded engine "
# Half the last digit of a length printed with two decimals, and a little for the division.
_HALF_DIGIT = 0.0051
MAX_POSITIONS = 256


class VllmFormat:
    engine = "vllm"
    intervals = frozenset({b"Avg prompt throughput:", b"SpecDecoding metrics:", b"Speculative metrics:"})
    banners = frozenset({EMBEDDED_BANNER, b"LLM engine (v", b"API server version", b"vLLM server version"})

    def __init__(self) -> None:
        self.usual = {
            b"Avg prompt throughput:": (_USUAL_LOAD, _usual_load),
            b"SpecDecoding metrics:": (_USUAL_DRAFTS, _usual_drafts),
        }
        self.marks: dict[bytes, LineReader] = {
            b"Avg prompt throughput:": _load,
            b"SpecDecoding metrics:": _drafts,
            b"Speculative metrics:": _since_start,
            EMBEDDED_BANNER: _embedded,
            b"non-default args:": _settings,
            b"LLM engine (v": _settings,
            b"API server version": _settings,
            b"vLLM server version": _settings,
            b"Successfully reset prefix cache": _flushed,
        }

    def finish(self, section: Section) -> None:
        _file(section)


def _embedded(_line: bytes, _time_s: float, _prefix: bytes, section: Section) -> None:
    section.is_embedded = True


def _load(line: bytes, time_s: float, prefix: bytes, section: Section) -> None:
    _file(section)
    values = {name: bounded(match[1]) for name, pattern in _LOAD.items() if (match := pattern.search(line))}
    if "kv_usage" in values:
        values["kv_usage"] /= 100.0
    engine = _ENGINE.search(prefix)
    if (preempted := _PREEMPTIONS.search(line)) and preempted[1] != b"0":
        section.note("requests retracted", time_s)
    section.pending |= values | {"source": float(engine[1]) if engine else 0.0, "time_s": time_s}


def _usual_load(match: re.Match[bytes], clock: Clock, section: Section) -> None:
    minute, second, engine, throughput, running, queued, usage = match.groups()
    values = {
        "time_s": clock.at(minute, second),
        "source": float(engine),
        "throughput": float(throughput),
        "running": float(running),
        "queued": float(queued),
        "kv_usage": float(usage) / 100.0,
    }
    _file(section)
    section.pending |= values


def _file(section: Section) -> None:
    """An interval is whole once the next one begins: the drafts' line belongs to the load line before it."""
    if section.pending:
        section.series.append(row(section.pending))
        section.pending.clear()


def _drafts(line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    printed = {
        name: pattern.search(line) for name, pattern in (("length", _LENGTH), ("accepted", _ACCEPTED), ("drafted", _DRAFTED))
    }
    if printed["accepted"] is None or printed["drafted"] is None:
        raise ValueError("counts are missing")
    values = {name: bounded(match[1]) for name, match in printed.items() if match is not None}
    if rate := _RATE.search(line):
        values["rate"] = bounded(rate[1]) / 100.0
    positions = _POSITIONS.search(line)
    rates = [bounded(text) for text in positions[1].split(b", ")[:MAX_POSITIONS]] if positions else []
    speeds = [float(match[1]) if (match := pattern.search(line)) else 0.0 for pattern in _THROUGHPUTS]
    _take_drafts(values, rates, _interval_s(values, *speeds), time_s, section)


def _usual_drafts(match: re.Match[bytes], clock: Clock, section: Section) -> None:
    minute, second, length, accepted_speed, drafted_speed, accepted, drafted, positions, rate = match.groups()
    values = {"length": float(length), "accepted": float(accepted), "drafted": float(drafted), "rate": float(rate) / 100.0}
    rates = [float(text) for text in positions.split(b", ")[:MAX_POSITIONS]]
    interval_s = _interval_s(values, float(drafted_speed), float(accepted_speed))
    _take_drafts(values, rates, interval_s, clock.at(minute, second), section)


def _take_drafts(values: dict[str, float], rates: list[float], interval_s: float, time_s: float, section: Section) -> None:
    """File the figures of a line about drafts with those of the load line before it."""
    if "rounds" in section.pending:
        _file(section)  # two lines of drafts in a row: the load lines between them were filtered out
    rounds = _rounds(values, rates)
    values["rounds"] = rounds
    if interval_s > 0:
        tokens = section.pending.get("throughput", math.nan) * interval_s
        # what was generated less what drafts supplied: first tokens of prefill are among them, a few in a hundred
        values["steps"] = max(tokens - values["accepted"], rounds) if tokens == tokens else math.nan
    if rates and rounds > 0:
        section.add_positions(rates, rounds)
        _check(values, rates, section)
    section.pending |= {"time_s": section.pending.get("time_s", time_s)} | values


def _since_start(line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    """Counts since the server started: an interval is what they grew by."""
    found = {name: pattern.search(line) for name, pattern in _SINCE_START.items()}
    counts = {name: bounded(match[1]) for name, match in found.items() if match is not None}
    if len(counts) < len(_SINCE_START) or not counts["depth"]:
        raise ValueError("counts are missing")
    if "rounds" in section.pending:
        _file(section)
    before = section.counts
    if any(counts[name] < before.get(name, 0.0) for name in ("drafted", "emitted")):
        before = {}  # another server, or the same one started anew
    drafted, emitted = (counts[name] - before.get(name, 0.0) for name in ("drafted", "emitted"))
    rounds = drafted / counts["depth"]
    section.counts = counts
    section.settings.setdefault("num_speculative_tokens", f"{counts['depth']:.0f}")
    section.position_lines["counts since the start"] += 1
    section.pending.setdefault("time_s", time_s)
    if rounds > 0:
        section.pending |= {"rounds": rounds, "drafted": drafted, "accepted": max(emitted - rounds, 0.0)}
        section.pending["length"] = emitted / rounds


def _rounds(values: dict[str, float], rates: list[float]) -> float:
    """Steps that carried drafts: drafted / k where every draft was of full length, else accepted / (length - 1)."""
    drafted, accepted, length = values["drafted"], values["accepted"], values.get("length", math.nan)
    full = drafted / len(rates) if rates else math.nan
    surplus = accepted / full if full > 0 else math.nan
    if abs(1.0 + surplus - length) <= _HALF_DIGIT or abs(surplus - length) <= _HALF_DIGIT:
        return full
    if not rates and length > 1.0:
        return accepted / (length - 1.0)
    total = sum(rates)
    return accepted / total if total > 0 else full


def _interval_s(values: dict[str, float], drafted_per_s: float, accepted_per_s: float) -> float:
    """Length of the interval, from a count and the throughput printed for it; 0 where neither tells."""
    for name, per_s in (("drafted", drafted_per_s), ("accepted", accepted_per_s)):
        if values[name] > 0 and per_s > 0:
            return values[name] / per_s
    return 0.0


def _check(values: dict[str, float], rates: list[float], section: Section) -> None:
    """Whether the figures of one line agree: which reading of the length fits, drafts of full length or shorter, rates that
    rise."""
    seen, length = section.position_lines, values.get("length", math.nan)
    slack = _HALF_DIGIT + 0.0005 * len(rates)
    seen["lines"] += 1
    seen["bonus in length"] += abs(length - 1.0 - sum(rates)) <= slack
    seen["no bonus in length"] += abs(length - sum(rates)) <= slack
    seen["rising"] += any(later > earlier + 0.0011 for earlier, later in itertools.pairwise(rates))
    seen["more accepted than drafted"] += values["accepted"] > values["drafted"]
    if values["rounds"] > 0:
        drafts = values["drafted"] / values["rounds"]
        seen["more drafts than positions"] += drafts > len(rates) * 1.02 + 0.02
        seen["shorter drafts"] += drafts < len(rates) * 0.98 - 0.02


def _settings(line: bytes, _time_s: float, _prefix: bytes, section: Section) -> None:
    section.is_embedded = False
    for name, pattern in _SETTINGS.items():
        if match := pattern.search(line):
            value = next(group for group in match.groups() if group is not None)
            section.settings.setdefault(name, value.decode(errors="replace"))


def _flushed(_line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    section.note("cache flushed", time_s)
