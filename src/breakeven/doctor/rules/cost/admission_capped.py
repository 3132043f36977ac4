"""SGLang's own limit for speculation holds requests back.

Detects: a queue that never empties at the number of running requests that SGLang sets by itself when it speculates.

Why it hurts: the plain server has no such limit. Above it, a comparison measures the queue, and a good drafter looks slow.

Evidence: running and waiting requests by line; the line that says "reset to".

Remedy: --max-running-requests with the same number on every server that is compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import fault, reported
from breakeven.doctor.signs import both
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    if launch is not None and launch.is_whole and not launch.max_running:
        return  # the command itself shows it (running-requests-capped)
    for source, finding in reported(evidence, "admission-capped"):
        yield fault(source, finding, both("queueing"))
