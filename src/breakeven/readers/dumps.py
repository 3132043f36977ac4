"""Dumps of /metrics: one scrape or several, in one file or in several, and what happened between them.

Counters run since the start of the server, so a window is the difference of two scrapes. Each sample is differenced on its own, by
all its labels, and summed after: where one of several engines restarted, its counters begin at zero again, and what it counts then
is the difference. A sum taken first would hide that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Scrape", "Window", "in_order", "is_dump", "scrapes", "window"]

_SAMPLE = re.compile(
    rb'^((?:vllm|sglang|breakeven|llamacpp):[a-zA-Z0-9_:]+|process_start_time_seconds)(\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*\})?[ \t]+'
    rb"(\S{1,40})(?:[ \t]+(-?\d{1,16}))?[ \t]*\r?$",
    re.MULTILINE,
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_DUMP_LINE = re.compile(
    rb"^(?:# (?:HELP|TYPE) \S|(?:vllm|sglang|llamacpp|breakeven):[a-z_:]+(?:\{[^\n]*\})? +[-+0-9.eNI])", re.MULTILINE
)
COUNTERS = frozenset(
    {
        "vllm:prompt_tokens",
        "vllm:generation_tokens",
        "vllm:num_preemptions",
        "vllm:request_success",
        "vllm:time_to_first_token_seconds_count",
        "vllm:spec_decode_num_drafts",
        "vllm:spec_decode_num_draft_tokens",
        "vllm:spec_decode_num_accepted_tokens",
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "breakeven:decode_steps",
        "sglang:prompt_tokens",
        "sglang:generation_tokens",
        "sglang:num_requests",
        "sglang:spec_verify_calls",
        "llamacpp:prompt_tokens",
        "llamacpp:tokens_predicted",
    }
)
# The scrape that began a counter and the clock of the process are compared to a second.
_SAME_START_S = 1.0
MAX_SAMPLES = 200_000
# No server counts so far; beyond it floating point does not count in ones either.
_MOST = 1e15
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_IGNORED = (b"_bucket", b"_created")

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class Scrape:
    """One reading of every sample worth keeping. created: when each counter began, where the client library exports it."""

    samples: dict[Key, float] = field(default_factory=dict)
    created: dict[Key, float] = field(default_factory=dict)
    time_s: float = math.nan

    @property
    def engine(self) -> str:
        return next((name.split(":", 1)[0] for name, _ in self.samples if ":" in name), "")

    @property
    def start_s(self) -> float:
        return next((value for (name, _), value in self.samples.items() if name == "process_start_time_seconds"), math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was counted between two scrapes, or since the start where there is one. Gauges are those of the last scrape.

    restarted: labels of engines whose counters began again in between. odd: figures that cannot be counts.
    """

    engine: str
    counters: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]
    gauges: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]
    duration_s: float
    is_difference: bool
    restarted: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()

    def total(self, name: str) -> float:
        """Sum over engines and models; NaN where the family is not there."""
        samples = self.counters.get(name)
        return sum(samples.values()) if samples else math.nan

    def gauge(self, name: str) -> tuple[float, ...]:
        return tuple(self.gauges.get(name, {}).values())


def is_dump(head: bytes) -> bool:
    return len(_DUMP_LINE.findall(head, 0, 65_536)) >= 1


def scrapes(blocks: Iterable[bytes]) -> list[Scrape]:
    """The scrapes in one file: a sample that comes a second time begins the next one."""
    found: list[Scrape] = []
    for block in blocks:
        for match in _SAMPLE.finditer(block):
            raw_name, raw_labels, raw_value, raw_time = match.groups()
            if raw_name.endswith(_IGNORED[0]):
                continue
            try:
                value = float(raw_value)
            except ValueError:
                continue
            labels = _labels(raw_labels or b"")
            is_created = raw_name.endswith(_IGNORED[1])
            key = (raw_name.decode().removesuffix("_created" if is_created else "_total"), labels)
            current = found[-1] if found else None
            if current is None or key in (current.created if is_created else current.samples):
                current = Scrape()
                found.append(current)
            if len(current.samples) + len(current.created) >= MAX_SAMPLES:
                continue
            (current.created if is_created else current.samples)[key] = value
            if raw_time:
                current.time_s = int(raw_time) / 1e3
    return found


def _labels(raw: bytes) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_LABEL.findall(raw.decode(errors="replace"))))


def window(first: Scrape | None, last: Scrape) -> Window:
    """What `last` counts beyond `first`."""
    counters: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    gauges: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    restarted: dict[str, None] = {}
    odd = []
    is_new_process = first is not None and abs(last.start_s - first.start_s) > _SAME_START_S
    for key, value in last.samples.items():
        name, labels = key
        if name not in COUNTERS:
            gauges.setdefault(name, {})[labels] = value
            continue
        if first is not None and name == _PER_POSITION and name not in {known_name for known_name, _ in first.samples}:
            continue  # left out of the first dump: what it counted then is not known
        before = first.samples.get(key, 0.0) if first is not None else 0.0
        if not all(0.0 <= count <= _MOST for count in (value, before)):
            odd.append(f"{name} is {value:g}")
            continue
        began_again = first is not None and last.created.get(key, 0.0) > first.created.get(key, math.inf) + _SAME_START_S
        if value < before or is_new_process or began_again:
            restarted[_who(labels)] = None
            before = 0.0
        counters.setdefault(name, {})[labels] = value - before
    vanished = {_who(labels): None for name, labels in first.samples if name in COUNTERS} if first is not None else {}
    present = {_who(labels) for name, labels in last.samples if name in COUNTERS}
    return Window(
        engine=last.engine,
        counters=counters,
        gauges=gauges,
        duration_s=last.time_s - first.time_s if first is not None else math.nan,
        is_difference=first is not None,
        restarted=tuple(restarted),
        vanished=tuple(who for who in vanished if who not in present),
        odd=tuple(odd),
    )


def in_order(given: Sequence[Scrape]) -> tuple[list[Scrape], bool]:
    """Scrapes from old to new, and whether they had to be turned round: where stamps say so, or where every counter of the same
    process fell."""
    ordered = list(given)
    if all(math.isfinite(scrape.time_s) for scrape in ordered):
        ordered.sort(key=lambda scrape: scrape.time_s)
    elif len(ordered) == 2 and _is_same_process(*ordered):
        now_of = ordered[1].samples
        counted = [(then, now_of[key]) for key, then in ordered[0].samples.items() if key[0] in COUNTERS and key in now_of]
        if counted and all(now <= then for then, now in counted) and any(now < then for then, now in counted):
            ordered.reverse()
    return ordered, ordered != list(given)


def _is_same_process(one: Scrape, other: Scrape) -> bool:
    return abs(one.start_s - other.start_s) <= _SAME_START_S or bool(one.created and one.created == other.created)


def _who(labels: tuple[tuple[str, str], ...]) -> str:
    shown = [f"{name}={value}" for name, value in labels if name in {"engine", "instance", "pod", "model_name", "dp_rank"}]
    return ", ".join(shown) or "the server"
