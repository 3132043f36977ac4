"""Counters from a Prometheus exposition, read fast: a scrape stands at each edge of a measured window.

Only the families asked for are looked at (a full parse of a server's 100 kB takes ten times as long). Samples of several engines,
model names or finish reasons are summed. `vllm_counters` reads vLLM's names, which the embedded engine uses as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Counters
from breakeven.errors import EngineError

__all__ = ["Sample", "add_counters", "read_samples", "vllm_counters"]

_LABELS = r'\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}'
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")

VLLM_FAMILIES = (
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_preemptions",
    "vllm:request_success",
    "vllm:time_to_first_token_seconds_count",
    "vllm:spec_decode_num_drafts",
    "vllm:spec_decode_num_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens",
    "vllm:spec_decode_num_accepted_tokens_per_pos",
    "breakeven:decode_steps",
)
REQUIRED = VLLM_FAMILIES[:4]
# Beyond it a float no longer counts by ones, and sums would leave the 64 bits that the store keeps.
MAX_COUNT = 2.0**53


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


def read_samples(exposition: str, families: Sequence[str]) -> dict[str, list[Sample]]:
    """Samples of each family that is there, under its name without `_total` (a counter is found with and without it)."""
    found: dict[str, list[Sample]] = {}
    names = "|".join(re.escape(family) for family in families)
    for match in re.finditer(rf"^({names})(?:_total)?(?:{_LABELS})?[ \t]+(\S+)", exposition, re.MULTILINE):
        name, labels, value = match.groups()
        try:
            number = float(value)
        except ValueError as error:
            raise EngineError(
                f"the metrics hold {match.group()[:120]!a}; expected a number: is this a Prometheus endpoint?"
            ) from error
        found.setdefault(name, []).append(Sample(_labels(labels or ""), number))
    return found


def vllm_counters(exposition: str, time_s: float) -> Counters:
    """Counters from vLLM's names.

    Raises:
        EngineError: a counter that every version has is missing, or a count is not a whole number of at least 0.
    """
    samples = read_samples(exposition, VLLM_FAMILIES)
    missing = [name for name in REQUIRED if name not in samples]
    if missing:
        raise EngineError(
            f"the metrics lack {', '.join(missing)}; expected vLLM's names: is this the right metrics URL and engine?"
        )
    generation_tokens = _sum(samples, "vllm:generation_tokens")
    return Counters(
        time_s=time_s,
        prompt_tokens=_sum(samples, "vllm:prompt_tokens"),
        generation_tokens=generation_tokens,
        num_running=_sum(samples, "vllm:num_requests_running"),
        num_waiting=_sum(samples, "vllm:num_requests_waiting"),
        num_preemptions=_sum(samples, "vllm:num_preemptions"),
        num_requests=_sum(samples, "vllm:request_success") if "vllm:request_success" in samples else None,
        acceptance=_acceptance(samples, generation_tokens),
    )


def add_counters(replicas: Sequence[Counters]) -> Counters:
    """Counters of several replicas together, at the time of the last scrape. What one of them does not report is None.

    Raises:
        ValueError: no replica.
    """
    if not replicas:
        raise ValueError("no replica to add")
    requests = [counters.num_requests for counters in replicas]
    acceptances = [counters.acceptance for counters in replicas if counters.acceptance is not None]
    total = acceptances[0] if len(acceptances) == len(replicas) else None
    for acceptance in acceptances[1:]:
        total = total + acceptance if total is not None else None
    return Counters(
        time_s=max(counters.time_s for counters in replicas),
        prompt_tokens=sum(counters.prompt_tokens for counters in replicas),
        generation_tokens=sum(counters.generation_tokens for counters in replicas),
        num_running=sum(counters.num_running for counters in replicas),
        num_waiting=sum(counters.num_waiting for counters in replicas),
        num_preemptions=sum(counters.num_preemptions for counters in replicas),
        num_requests=sum(number or 0 for number in requests) if None not in requests else None,
        acceptance=total,
        at_finish=any(counters.at_finish for counters in replicas),
        gauge_accept_length=replicas[0].gauge_accept_length if len(replicas) == 1 else None,
    )


def _acceptance(samples: Mapping[str, list[Sample]], generation_tokens: int) -> Acceptance | None:
    if "vllm:spec_decode_num_drafts" not in samples:
        return None
    num_rounds = _sum(samples, "vllm:spec_decode_num_drafts")
    num_accepted = _sum(samples, "vllm:spec_decode_num_accepted_tokens")
    exact = "breakeven:decode_steps" in samples
    if exact:
        num_steps = _sum(samples, "breakeven:decode_steps")
    else:
        # tokens = first tokens (from prefill) + steps + accepted; an accepted token past the end of its request is counted by the
        # engine and never generated, so this is a little low, and never below the steps that carried drafts
        num_steps = max(num_rounds, generation_tokens - num_accepted - _num_first_tokens(samples))
    return Acceptance(
        num_steps=num_steps,
        num_rounds=num_rounds,
        num_drafted=_sum(samples, "vllm:spec_decode_num_draft_tokens"),
        num_accepted=num_accepted,
        accepted_per_position=_per_position(samples.get("vllm:spec_decode_num_accepted_tokens_per_pos", [])),
        exact_steps=exact,
    )


def _num_first_tokens(samples: Mapping[str, list[Sample]]) -> int:
    if "vllm:time_to_first_token_seconds_count" in samples:
        return _sum(samples, "vllm:time_to_first_token_seconds_count")
    return _sum(samples, "vllm:request_success") + _sum(samples, "vllm:num_requests_running")


def _per_position(samples: Sequence[Sample]) -> tuple[int, ...]:
    counts: dict[int, int] = {}
    for sample in samples:
        position = sample.labels.get("position", "")
        if not (position.isascii() and position.isdigit() and len(position) < 4):
            raise EngineError(f"the metrics count accepted tokens at position {position!a}; expected a small whole number")
        counts[int(position)] = counts.get(int(position), 0) + _count("accepted tokens", sample.value)
    return tuple(counts.get(position, 0) for position in range(max(counts) + 1)) if counts else ()


def _sum(samples: Mapping[str, list[Sample]], family: str) -> int:
    return sum(_count(family, sample.value) for sample in samples.get(family, ()))


def _count(name: str, value: float) -> int:
    if not 0 <= value <= MAX_COUNT or value != int(value):
        raise EngineError(f"the metrics say {name} is {value}; expected a whole number from 0 to 2^53")
    return int(value)


def _labels(text: str) -> dict[str, str]:
    return {name: _unescape(value) for name, value in _LABEL.findall(text)}


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value) if "\\" in value else value
