"""One data-parallel rank or engine of a server accepts less than the others.

Detects: accept lengths of the ranks in a log, or of the engines in counters, that differ by more than noise and traffic explain.

Why it hurts: requests are dealt out to the ranks alike, so they accept alike. A rank that does not computes something else, and the
mean over all hides it: three ranks at 2.6 and one at 1.0 read as 2.2.

Evidence: the accept length of every rank.

Remedy: the same prompts without data-parallel attention, or a newer release; rule out that a router sends that rank other traffic.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "rank-accepts-less"):
        yield seen(source, finding, "engines-differ")
