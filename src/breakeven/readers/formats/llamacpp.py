"""llama.cpp's server prints each request when it ends:

    slot print_timing: id 0 | task 42 |        eval time =    3133.20 ms /   353 tokens (8.88 ms per token, 112.66 tokens per
    second) slot print_timing: id 0 | task 42 | draft acceptance = 0.66237 (  257 accepted /   388 generated), mean acceptance
        length = 3.65, acceptance rate per position = (0.804, 0.701, 0.629, 0.515)

Before PR 24536 it was "draft acceptance rate = ..." with the counts alone. Some builds say "mean len". A row is a request here, and
the tokens generated less those accepted are its decode steps, with and without drafts.
"""

from __future__ import annotations

import math
import re

from breakeven.readers.formats.base import LineReader, UsualReader, bounded
from breakeven.readers.sections import Section, row

__all__ = ["LlamaCppFormat"]

_EVAL = re.compile(rb"eval time = +([\d.]+) ms / +(\d+) (?:tokens|runs)")
_DRAFT = re.compile(rb"draft acceptance(?: rate)? = +([\d.]+) \( *(\d+) accepted / *(\d+) generated\)")
_LENGTH = re.compile(rb"mean (?:acceptance length|len) = +([\d.]+)")
_POSITIONS = re.compile(rb"per position = \((\d[\d., ]*)\)")
_NUM_DRAFTS = re.compile(rb"--(?:spec-draft-n-max|draft-max|draft-n|draft)[ =]+(\d{1,3})\b")


class LlamaCppFormat:
    engine = "llama.cpp"
    intervals = frozenset({b"draft acceptance"})
    banners = frozenset({b"main: server is listening"})

    def __init__(self) -> None:
        self.usual: dict[bytes, tuple[re.Pattern[bytes], UsualReader]] = {}
        self.marks: dict[bytes, LineReader] = {
            b"eval time =": _timing,
            b"draft acceptance": _drafts,
            b"main: server is listening": _nothing,
            b"--spec-draft-n-max": _settings,
            b"--draft-max": _settings,
        }

    def finish(self, section: Section) -> None:
        _file(section)


def _timing(line: bytes, time_s: float, prefix: bytes, section: Section) -> None:
    match = _EVAL.match(line)
    if prefix.rstrip().endswith(b"prompt"):
        _file(section)
        return
    if match is None:
        raise ValueError("no time and count")
    _file(section)
    duration_s, tokens = bounded(match[1]) / 1e3, bounded(match[2])
    section.pending |= {"time_s": time_s, "tokens": tokens, "running": 1.0}
    if duration_s > 0:
        section.pending["throughput"] = tokens / duration_s


def _file(section: Section) -> None:
    if section.pending:
        section.pending.pop("tokens", None)
        section.series.append(row(section.pending))
        section.pending.clear()


def _drafts(line: bytes, time_s: float, _prefix: bytes, section: Section) -> None:
    match = _DRAFT.match(line)
    if match is None:
        raise ValueError("no counts")
    rate, accepted, drafted = (bounded(text) for text in match.groups())
    values = {"rate": rate, "accepted": accepted, "drafted": drafted}
    tokens = section.pending.get("tokens", math.nan)
    if tokens >= accepted:
        values["steps"] = tokens - accepted
    if length := _LENGTH.search(line):
        values["length"] = bounded(length[1])
    if positions := _POSITIONS.search(line):
        rates = [bounded(text) for text in positions[1].split(b",")]
        total = sum(rates)
        values["rounds"] = accepted / total if total > 0 else drafted / len(rates)
        section.add_positions(rates, values["rounds"])
        section.position_lines["lines"] += 1
    elif values.get("length", 0.0) > 1.0:
        values["rounds"] = accepted / (values["length"] - 1.0)
    section.pending |= {"time_s": section.pending.get("time_s", time_s)} | values
    _file(section)


def _settings(line: bytes, _time_s: float, _prefix: bytes, section: Section) -> None:
    if match := _NUM_DRAFTS.search(line):
        section.settings.setdefault("num_speculative_tokens", match[1].decode())


def _nothing(_line: bytes, _time_s: float, _prefix: bytes, _section: Section) -> None:
    """A start of the server: nothing to keep but that it happened."""
