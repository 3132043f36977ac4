"""Requests wait for others to end.

Detects: a queue that never empties at a constant number of running requests; the limit of 48 that SGLang sets when it speculates;
requests put back for want of cache.

Why it hurts: throughput is that of the limit, whatever is accepted. Against a plain server without that limit the comparison is
void.

Evidence: running and waiting requests by line; the limit in the banner.

Remedy: the same limit on every arm that is compared; more cache, or fewer requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "queue-saturated", "kv-cache-full"):
        yield seen(source, finding, "queueing")
    for source, finding in reported(evidence, "admission-capped"):
        # why it is full is told by the rules about the limit
        waits = finding.model_copy(update={"title": "The queue never empties, so throughput is that of the limit"})
        yield seen(source, waits, "queueing")
