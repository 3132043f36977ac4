"""The accept length collapses when cached prefixes are used again.

Detects: a stretch of a log far below those around it, with cached prompt tokens, a host cache or a cache flush as evidence; or
several logs of which one collapses, on a server with a host cache.

Why it hurts: prefixes from a cache bring back the target's keys and values but not the drafter's, so drafts start blind.
Acceptance is good right after a start or a flush, and poor in real use.

Evidence: accept lengths by phase; the share of prompt tokens from the cache; flushes; enable_hierarchical_cache.

Remedy: serve with the host cache off (HiCache, KV offload), or a release that restores the drafter's cache too.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import host_cache, reported, seen
from breakeven.doctor.told import Told

REFUTES = ("The drafter's training or the target's quantization: without the cache the same head is accepted as it should be.",)


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "accept-length-falls-after-cache-reuse"):
        yield seen(source, finding, "falls-after-cache-reuse", refutes=REFUTES)
    cached = host_cache(evidence)
    if not cached:
        return
    for source, finding in reported(evidence, "accept-length-collapses"):
        told = finding.model_copy(update={"evidence": (*finding.evidence, *cached)})
        yield seen(source, told, "falls-after-cache-reuse", refutes=REFUTES)
