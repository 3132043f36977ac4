"""Positions after the first are never accepted.

Detects: acceptance of exactly zero from some position on, over so many rounds that even a poor head would have been right there.

Why it hurts: drafts beyond that position only cost. It is a fault of serving: positions, attention mask or the state that one
draft step hands to the next.

Evidence: the rates by position and the number of rounds. A weak head decays by a factor from position to position (0.207, 0.04,
0.009), it does not end.

Remedy: replay the head offline on the same text; upgrade the engine or change its backend; meanwhile draft only the positions
that live.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import seen
from breakeven.doctor.suspicions import not_quantization, not_training
from breakeven.doctor.told import Told
from breakeven.readers.findings.curve import dead_positions


def check(evidence: Evidence) -> Iterator[Told]:
    refutes = (
        *not_quantization(evidence, "exact zeros from one position on, because it lowers all positions alike"),
        *not_training("exact zeros after a position that works"),
    )
    for one in evidence.observed:
        for finding in dead_positions(one.joint, one.level.rounds, one.source):
            yield seen(one.source, finding, "first-position-only", refutes=refutes)
