"""When requests are due. Both schedules are seeded, so that every arm of a block meets the same one."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["poisson_times", "staggered_tokens"]


def poisson_times(rate_per_s: float, seed: int) -> Iterator[float]:
    """Endless due times in seconds from 0, of a Poisson process: independent exponential gaps with mean 1 / `rate_per_s`."""
    rng = random.Random(seed)
    due_s = 0.0
    while True:
        due_s += rng.expovariate(rate_per_s)
        yield due_s


def staggered_tokens(slot: int, concurrency: int, max_tokens: int) -> int:
    """Tokens that the first request of `slot` asks for: `max_tokens` times (slot + 1) / `concurrency`, at least 1.

    Slots that start together and write answers of one length would end together for ever: all prefill, then all decode, which no
    production server sees. A loop that has run for long finds its requests at evenly spread stages, so their remaining lengths are
    spread evenly from 0 to `max_tokens` (the residual life of a renewal process); the first requests are given just those.
    """
    return max(1, round(max_tokens * (slot + 1) / concurrency))
