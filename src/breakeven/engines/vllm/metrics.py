"""vLLM's /metrics. Steps are not counted there: they follow from tokens, first tokens and accepted drafts (see prometheus.py)."""

from __future__ import annotations

from breakeven.engines.base import Counters
from breakeven.engines.prometheus import vllm_counters

__all__ = ["parse_metrics"]


def parse_metrics(exposition: str, time_s: float) -> Counters:
    """See `Engine.parse_metrics`."""
    return vllm_counters(exposition, time_s)
