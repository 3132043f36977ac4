"""One measured window of one arm at one load point: what the store keeps, raw. Summaries are derived, never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.engines.base import Counters
from breakeven.loadgen.samples import ClientHealth, LoadPoint, RequestSample, Void

__all__ = ["Trial", "Void"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`block` pairs the launches that are compared; `launch` is unique per start of a server; `order` is the place in the block.

    `attempt` counts the tries of one (arm, load, block, repeat): a voided trial stays in the store and is tried again.
    `counters` are the scrapes at the two ends of the window (None for an attached server without metrics).
    """

    arm: str
    load: LoadPoint
    block: int
    launch: str
    order: int
    repeat: int
    started_at_unix_s: float
    window_s: float
    samples: Sequence[RequestSample]
    health: ClientHealth
    counters: tuple[Counters, Counters] | None
    voids: tuple[Void, ...] = ()
    attempt: int = 0

    @property
    def valid(self) -> bool:
        return not self.voids
