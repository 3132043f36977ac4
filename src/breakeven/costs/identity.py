"""The equation everything hangs on, in both directions.

    decode speedup(B, k)  = AL / c(B, k)                      c(B, k) = R(B, k) / R(B, 0)
    request speedup       = 1 / (p + (1 - p) c / AL)

AL is the accept length (tokens a step, bonus included), R(B, k) the time of a round with k drafts while B requests run, and p the
share of a plain request's time that goes by before its first token. Derived in docs/equation.md. It holds for a steady batch.
"""

from __future__ import annotations

import math

__all__ = ["accept_length_for", "request_speedup"]


def request_speedup(accept_length: float, cost_ratio: float, prefill_share: float) -> float:
    """Speedup of whole requests. With `prefill_share` 0 it is that of decoding."""
    return 1.0 / (prefill_share + (1.0 - prefill_share) * cost_ratio / accept_length)


def accept_length_for(speedup: float, cost_ratio: float, prefill_share: float) -> float:
    """The accept length at which requests are `speedup` times as fast: (1 - p) c / (1 / speedup - p).

    Infinite where prefill alone takes too long for any accept length to reach it.
    """
    room = 1.0 / speedup - prefill_share
    return (1.0 - prefill_share) * cost_ratio / room if room > 0 else math.inf
