"""The accept length changes over time.

Detects: the last third of a log against the first, with the running batch taken out.

Why it hurts: state of the server that decays (draft cache, memory), or traffic that changes: the figure of one hour is not that
of the next.

Evidence: accept lengths of the thirds.

Remedy: flush the prefix cache or restart one replica; if it comes back the server is at fault, else the traffic.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told

REFUTES = ("The drafter's files and flags: they have not changed while the server ran.",)


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "accept-length-drifts"):
        refutes = REFUTES if finding.severity != "info" else ()
        yield seen(source, finding, "falls-with-time", refutes=refutes)
