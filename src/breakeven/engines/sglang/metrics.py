"""SGLang's /metrics. Tokens and verify calls are counted when a request ends; gauges alone show more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Counters
from breakeven.engines.prometheus import Sample, read_samples
from breakeven.errors import EngineError

__all__ = ["parse_metrics"]

FAMILIES = (
    "sglang:prompt_tokens",
    "sglang:generation_tokens",
    "sglang:num_requests",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:num_retracted_requests",
    "sglang:spec_verify_calls",  # 0.5.15 and later
    "sglang:spec_num_steps",
    "sglang:spec_accept_length",
)
REQUIRED = ("sglang:num_running_reqs", "sglang:num_queue_reqs")


def parse_metrics(exposition: str, time_s: float) -> Counters:
    """See `Engine.parse_metrics`. A counter appears with its first request, so an idle server shows gauges only."""
    samples = read_samples(exposition, FAMILIES)
    missing = [name for name in REQUIRED if name not in samples]
    if missing:
        raise EngineError(
            f"the metrics lack {', '.join(missing)}; expected SGLang's names: is this the right metrics URL, and was the server "
            "started with --enable-metrics?"
        )
    gauge = _gauge(samples, "sglang:spec_accept_length")
    return Counters(
        time_s=time_s,
        prompt_tokens=_sum(samples, "sglang:prompt_tokens"),
        generation_tokens=_sum(samples, "sglang:generation_tokens"),
        num_running=_sum(samples, "sglang:num_running_reqs"),
        num_waiting=_sum(samples, "sglang:num_queue_reqs"),
        num_preemptions=_sum(samples, "sglang:num_retracted_requests"),
        num_requests=_sum(samples, "sglang:num_requests"),
        acceptance=_acceptance(samples),
        at_finish=True,
        # zero without speculation, and before the first interval
        gauge_accept_length=gauge if gauge else None,
    )


def _acceptance(samples: Mapping[str, Sequence[Sample]]) -> Acceptance | None:
    """Of the requests that ended: tokens = first tokens (from prefill) + verify calls + accepted drafts that were kept.

    Drafts accepted past the end of a request are not kept, so this is a little low. Drafts are not counted: the gauges that tell
    how many a round has are 0 before the first report of the scheduler, and mean something else with n-grams.
    """
    if "sglang:spec_verify_calls" not in samples and not _gauge(samples, "sglang:spec_num_steps"):
        return None
    num_rounds = _sum(samples, "sglang:spec_verify_calls")
    num_accepted = max(0, _sum(samples, "sglang:generation_tokens") - _sum(samples, "sglang:num_requests") - num_rounds)
    return Acceptance(
        num_steps=num_rounds,
        num_rounds=num_rounds,
        num_drafted=0,
        num_accepted=num_accepted,
        exact_steps=False,
    )


def _gauge(samples: Mapping[str, Sequence[Sample]], family: str) -> float | None:
    """The mean over data-parallel ranks; tensor-parallel ones say the same thing each."""
    values = [sample.value for sample in samples.get(family, ()) if math.isfinite(sample.value)]
    return sum(values) / len(values) if values else None


def _sum(samples: Mapping[str, Sequence[Sample]], family: str) -> int:
    total = 0
    for sample in samples.get(family, ()):
        # every tensor-parallel rank reports the same requests
        if sample.labels.get("tp_rank", "0") != "0":
            continue
        if not math.isfinite(sample.value) or sample.value < 0 or sample.value != int(sample.value):
            raise EngineError(f"the metrics say {family} is {sample.value}; expected a whole number of at least 0")
        total += int(sample.value)
    return total
