"""Data-parallel ranks or engines of one server that accept differently: their mean is nobody's accept length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from breakeven.findings import Finding
from breakeven.readers.effects import MIN_BLOCKS, Level, judge
from breakeven.readers.study import Study

__all__ = ["odd_rank", "ranks"]

# One rank of several that lies below the rest by less than this share of their accepted drafts may have other traffic.
LEAST_SHARE = 0.2
FLOOR_ACCEPTED = 0.02
_REMEDY = (
    "Requests are dealt out to the ranks alike, so they accept alike. One that accepts less computes something else: suspect the "
    "drafter under data-parallel attention (its tokens padded or gathered for the wrong rank) and graphs of single ranks. Serve "
    "the same prompts without data parallelism, or upgrade; rule out that a router sends other traffic to that rank."
)


def ranks(one: Study) -> Finding | None:
    sources = one.columns["source"]
    found = {f"{source:.0f}": one.level_of(sources == source) for source in np.unique(sources[np.isfinite(sources)])}
    return odd_rank({name: level for name, level in found.items() if level.num_lines >= MIN_BLOCKS})


def odd_rank(levels: Mapping[str, Level]) -> Finding | None:
    """The rank that accepts least against the others together; None where noise or traffic would explain it."""
    if len(levels) < 2:
        return None
    name = min(levels, key=lambda rank: levels[rank].mean)
    low = levels[name]
    others = [level for rank, level in levels.items() if rank != name]
    rest = sum(level.mean * level.rounds for level in others) / max(sum(level.rounds for level in others), 1e-9)
    nearest = min(others, key=lambda level: level.mean)
    is_dead = low.mean - 1.0 < FLOOR_ACCEPTED <= nearest.mean - 1.0
    if not is_dead and (judge(nearest, low) != "effect" or rest - low.mean < LEAST_SHARE * (rest - 1.0)):
        return None
    shown = "; ".join(f"{rank}: {level}" for rank, level in list(levels.items())[:16])
    return Finding(
        code="rank-accepts-less",
        severity="error" if is_dead else "warning",
        confidence="high" if is_dead else "medium",
        title=f"Rank {name} accepts {low.mean:.2f}, the others {rest:.2f}: the accept length of all together is nobody's.",
        evidence=(f"accept length by data-parallel rank or engine: {shown}",),
        remedy=_REMEDY,
    )
