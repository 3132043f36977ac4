"""Acceptance of single requests, from the `metrics.speculative_decoding` of vLLM's answers (--per-request-spec-decode-metrics).

Between 0.26 and 0.32 and later. Only steps that carried drafts are counted, as in vLLM's other figures.
"""

from __future__ import annotations

from collections.abc import Mapping

from breakeven.acceptance import Acceptance
from breakeven.errors import EngineError

__all__ = ["ROUNDS", "request_metrics_acceptance"]

ROUNDS = "num_spec_steps"


def request_metrics_acceptance(reported: Mapping[str, object], output_tokens: int) -> Acceptance | None:
    """One request's acceptance; None where it took no decode step.

    All its decode steps follow from its tokens: the first comes from prefill, every step adds one, accepted drafts are the rest. So
    a request that never had a draft (nothing to look up, or a schedule at rest) counts with its steps.

    Raises:
        EngineError: a count is not a whole number of at least 0.
    """
    num_rounds, num_accepted = _count(reported, ROUNDS), _count(reported, "num_accepted_draft_tokens")
    num_steps = max(num_rounds, output_tokens - 1 - num_accepted)
    if num_steps <= 0:
        return None
    histogram = reported.get("acceptance_histogram")
    counts = [_whole("acceptance_histogram", count) for count in histogram] if isinstance(histogram, list) else []
    return Acceptance(
        num_steps=num_steps,
        num_rounds=num_rounds,
        num_drafted=max(num_accepted, _count(reported, "num_draft_tokens")),
        num_accepted=num_accepted,
        # a round that accepted j drafts accepted those at the positions 0 to j - 1
        accepted_per_position=tuple(sum(counts[accepted:]) for accepted in range(1, len(counts))),
        exact_steps=False,
        source="requests",
    )


def _count(reported: Mapping[str, object], name: str) -> int:
    return _whole(name, reported.get(name, 0))


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise EngineError(f"metrics.speculative_decoding.{name} is {value!a}; expected a whole number of at least 0")
    return value
