"""The accept length collapses for a while.

Detects: a stretch of a log, or one log among several, far below those around it, without a trace of a cache in the log; where the
stretch is that of the long contexts, that is said.

Why it hurts: for that while speculation only costs. What is at fault differs: cached prefixes without the drafter's keys and
values, contexts beyond what the drafter can do, another kind of traffic.

Evidence: accept lengths by phase, and by tokens a request.

Remedy: flush the prefix cache and look: if the accept length comes back, it is the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import host_cache, reported, seen
from breakeven.doctor.told import Seen, Told
from breakeven.readers.reading import Cut, Reading

# The share of accepted drafts that is lost between short and long contexts before the collapse is called theirs.
LOST_WITH_CONTEXT = 0.25
FEW_LINES = 4
# A last line or two that lie lower are as often chance.
ENOUGH_LINES = 12


def check(evidence: Evidence) -> Iterator[Told]:
    readings = evidence.readings
    assert readings is not None
    lines = {reading.source: reading.num_lines for reading in readings.readings}
    by_context = {reading.source: fall for reading in readings.readings if (fall := _by_context(reading)) is not None}
    for source, finding in reported(evidence, "accept-length-collapses"):
        if host_cache(evidence):
            continue  # falls-after-cache-reuse says so
        fall = by_context.get(source)
        if fall is None:
            told = seen(source, finding, "falls-with-time")
            few = finding.confidence == "low" and lines.get(source, ENOUGH_LINES) < ENOUGH_LINES
            yield replace(told, severity="info") if few else told
            continue
        short, long = fall
        yield Seen(
            sign="falls-with-context",
            severity="warning",
            confidence="medium",
            title=f"Accept length collapses where contexts are long: {short.accept_length:.2f} at {short.low:.0f} to "
            f"{short.high:.0f} tokens a request, {long.accept_length:.2f} at {long.low:.0f} to {long.high:.0f}",
            evidence=tuple(f"{source}: {line}" for line in finding.evidence),
            remedy="Compare the drafter's max_position_embeddings, RoPE settings and trained length with what is served.",
        )


def _by_context(reading: Reading) -> tuple[Cut, Cut] | None:
    cuts = [cut for cut in reading.cuts if cut.by == "context" and cut.accept_length is not None and cut.num_lines >= FEW_LINES]
    if len(cuts) < 2:
        return None
    short, long = cuts[0], cuts[-1]
    assert short.accept_length is not None
    assert long.accept_length is not None
    lost = short.accept_length - long.accept_length
    apart = lost > (short.uncertainty or 0.0) + (long.uncertainty or 0.0)
    return (short, long) if apart and lost > LOST_WITH_CONTEXT * (short.accept_length - 1.0) else None
