"""The embedded server's /metrics: vLLM's names, and one of its own that counts every decode step."""

from __future__ import annotations

from breakeven.engines.base import Counters
from breakeven.engines.prometheus import vllm_counters
from breakeven.errors import EngineError

__all__ = ["parse_metrics"]


def parse_metrics(exposition: str, time_s: float) -> Counters:
    """See `Engine.parse_metrics`."""
    if "breakeven:decode_steps" not in exposition:
        raise EngineError(
            "the metrics lack breakeven:decode_steps; expected the embedded engine's: is another engine behind this URL?"
        )
    return vllm_counters(exposition, time_s)
