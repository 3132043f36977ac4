"""SGLang's decode, prefill and banner lines.

    Decode batch. #running-req: 1, #token: 186, token usage: 0.00, accept len: 2.17, accept rate: 0.54, cuda graph: True,
    gen throughput (token/s): 0.39, #queue-req: 0,

is one line. "Decode batch." up to 0.5.3, "Decode batch [N]," in 0.5.4 and where iterations are logged, "Decode batch," else; pools
of hybrid models print `#full token` and the like instead of `#token`; later releases insert fields, and name the graph after the
device ("cpu graph"). So fields are found by name, whatever stands between them. Source: managers/scheduler_metrics_mixin.py, later
managers/scheduler_components/metrics_reporter.py.
"""

from __future__ import annotations

import math
import re

from breakeven.readers.clock import Clock
from breakeven.readers.formats.base import LineReader, bounded
from breakeven.readers.sections import Section

__all__ = ["SGLangFormat"]

MAX_LOG_INTERVAL = 1_000_000
_RANK = re.compile(rb"\bDP(\d{1,4})\b")
_USUAL_DECODE = re.compile(
    rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d):(\d\d)(?: DP(\d{1,4}))?(?: [A-Z]+\d+)*\] Decode batch[.,]? (?:\[\d+\], )?"
    rb"#running-req: (\d{1,7}), #token: (\d{1,12}), token usage: ([\d.]{1,8}), "
    rb"(?:accept len: ([\d.]{1,8}), accept rate: ([\d.]{1,8}), )?cuda graph: (True|False), "
    rb"gen throughput \(token/s\): ([\d.]{1,14}), #queue-req: (\d{1,7})"
)
_USUAL_PREFILL = re.compile(
    rb"\[[^\]\n\"']{1,60}\] Prefill batch[.,]? (?:\[\d+\], )?#new-seq: \d+, #new-token: (\d{1,9}), #cached-token: (\d{1,9}),"
)
_SETTING = re.compile(rb"\b([a-z][a-z0-9_]{2,60})(?:=|': )('[^'\n]{0,300}'|[-\w.]{1,60})")
_KEPT = frozenset(
    {
        "model_path",
        "attention_backend",
        "prefill_attention_backend",
        "decode_attention_backend",
        "speculative_algorithm",
        "speculative_draft_model_path",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_draft_model_quantization",
        "speculative_attention_mode",
        "speculative_adaptive",
        "quantization",
        "kv_cache_dtype",
        "max_running_requests",
        "cuda_graph_max_bs",
        "cuda_graph_max_bs_decode",
        "disable_cuda_graph",
        "disable_radix_cache",
        "enable_hierarchical_cache",
        "decode_log_interval",
        "tp_size",
        "dp_size",
    }
)
_NUMBER = re.compile(rb"[\d.]+")
_CAP = re.compile(rb"reset to (\d{1,5})")
_NAN = math.nan


class SGLangFormat:
    engine = "sglang"
    intervals = frozenset({b"Decode batch"})
    banners = frozenset({b"server_args="})

    def __init__(self) -> None:
        self.usual = {b"Decode batch": (_USUAL_DECODE, _usual_decode), b"Prefill batch": (_USUAL_PREFILL, _usual_prefill)}
        self.marks: dict[bytes, LineReader] = {
            b"Decode batch": _decode,
            b"Prefill batch": _prefill,
            b"server_args=": _settings,
            b"Cache flushed successfully": _flushed,
            b"KV cache pool is full. Retract": _retracted,
            b"Max running requests is reset to": _capped,
        }

    def finish(self, section: Section) -> None:
        section.pending.clear()


_GRAPHS: dict[bytes, float] = {b"True": 1.0, b"False": 0.0}


def _decode(line: bytes, time_s: float, prefix: bytes, section: Section) -> None:
    fields = dict(part.split(b": ", 1) for part in line.split(b", ") if b": " in part)
    running_key = next((key for key in fields if key.endswith(b"#running-req")), b"")
    if not running_key:
        raise ValueError("no #running-req")
    running = bounded(fields[running_key])
    length_text, rate_text = fields.get(b"accept len"), fields.get(b"accept rate")
    length = bounded(length_text) if length_text is not None else _NAN
    rate = bounded(rate_text) if rate_text is not None else _NAN
    if length_text is not None and rate_text is not None:
        section.count_pair(length_text, rate_text)
    rank = _RANK.search(prefix)
    interval = section.decode_interval
    pending = section.pending
    section.series.append(
        (
            time_s,
            float(rank[1]) if rank else 0.0,
            running,
            _number(fields.get(b"#queue-req")),
            _number(fields.get(b"gen throughput (token/s)")),
            length,
            rate,
            running * interval if length == length else _NAN,
            running * interval,
            _NAN,
            _NAN,
            _graph(fields),
            _number(fields.get(b"#token") or fields.get(b"#full token")),
            _number(fields.get(b"token usage") or fields.get(b"full token usage")),
            pending.pop("new_tokens", _NAN),
            pending.pop("cached_tokens", _NAN),
        )
    )


def _usual_decode(match: re.Match[bytes], clock: Clock, section: Section) -> None:
    minute, second, rank, running_text, tokens, usage, length_text, rate_text, graph, speed, queued = match.groups()
    running = float(running_text)
    steps = running * section.decode_interval
    length = rate = rounds = _NAN
    if length_text is not None:
        length, rate, rounds = float(length_text), float(rate_text), steps
    row = (
        clock.at(minute, second),
        float(rank) if rank else 0.0,
        running,
        float(queued),
        float(speed),
        length,
        rate,
        rounds,
        steps,
        _NAN,
        _NAN,
        1.0 if graph == b"True" else 0.0,
        float(tokens),
        float(usage),
        section.pending.pop("new_tokens", _NAN),
        section.pending.pop("cached_tokens", _NAN),
    )
    section.series.append(row)
    if length_text is not None:
        section.count_pair(length_text, rate_text)


def _usual_prefill(match: re.Match[bytes], _clock: Clock, section: Section) -> None:
    pending = section.pending
    pending["new_tokens"] = pending.get("new_tokens", 0.0) + int(match[1])
    pending["cached_tokens"] = pending.get("cached_tokens", 0.0) + int(match[2])


def _graph(fields: dict[bytes, bytes]) -> float:
    text = fields.get(b"cuda graph")
    return _GRAPHS.get(text[:5].rstrip(b", "), _NAN) if text is not None else _NAN


def _number(text: bytes | None) -> float:
    """The number a field begins with: the last field of a line may be followed by anything."""
    if text is None:
        return _NAN
    match = _NUMBER.match(text)
    if match is None:
        return _NAN
    return bounded(match[0])


def _prefill(line: bytes, _time_s: float, _prefix: bytes, section: Section) -> None:
    fields = dict(part.split(b": ", 1) for part in line.split(b", ") if b": " in part)
    for key, name in ((b"#new-token", "new_tokens"), (b"#cached-token", "cached_tokens")):
        if key in fields:
            section.pending[name] = section.pending.get(name, 0.0) + bounded(fields[key])


def _settings(line: bytes, _time_s: float, _prefix: bytes, section: Section) -> None:
    for key, value in _SETTING.findall(line):
        name = key.decode()
        if name in _KEPT:
            section.settings.setdefault(name, value.strip(b"'").decode(errors="replace"))
    interval = section.settings.get("decode_log_interval", "")
    if interval.isdigit() and 0 < int(interval[:9]) <= MAX_LOG_INTERVAL:
        section.decode_interval = int(interval[:9])


def _flushed(_line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    section.note("cache flushed", time_s)


def _retracted(_line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    section.note("requests retracted", time_s)


def _capped(line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    section.note("cap on running requests", time_s)
    if match := _CAP.search(line):
        section.settings.setdefault("max_running_requests", match[1].decode())
