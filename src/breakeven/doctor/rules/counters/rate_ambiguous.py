"""The printed accept rate can mean two things.

Detects: accept rates that fit the definitions of several releases with different numbers of drafts.

Why it hurts: releases of SGLang up to 0.5.10 count the bonus token in the rate, later ones do not: 0.42 is an accept length of
1.68 or of 2.26.

Evidence: the printed pairs, and the readings that fit.

Remedy: --engine-version, or the number of draft tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported
from breakeven.doctor.told import CannotDecide, Told


def check(evidence: Evidence) -> Iterator[Told]:
    assert evidence.readings is not None
    # where the accept length is printed beside the rate, nothing that the doctor judges by is open
    known = {one.source for one in evidence.readings.readings if one.acceptance is not None and one.acceptance.accept_length}
    for source, finding in reported(evidence, "rate-ambiguous"):
        if source.partition(", part ")[0] in known:
            continue
        yield CannotDecide(
            question=f"{source}: what is the accept length? {finding.title}",
            evidence=finding.evidence,
            provide="--engine-version, or a log that prints the accept length or the number of draft tokens",
        )
