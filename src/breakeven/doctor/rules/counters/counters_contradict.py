"""Figures of one server contradict each other.

Detects: lengths against the sum of positions, drafted tokens against drafts, accepted against drafted; counters that restarted or
an engine that vanished between two scrapes.

Why it hurts: whatever is concluded from such figures may be wrong.

Evidence: the figures.

Remedy: read counters of one server over one window; see what stands between it and you (proxies, several replicas).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(
        evidence,
        "counters-contradict",
        "counters-restarted",
        "engine-vanished",
        "rate-contradicts-length",
        "rate-contradicts-release",
    ):
        yield seen(source, finding, "figures-contradict")
