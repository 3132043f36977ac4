"""The drafter is large for its target.

Detects: a drafter of which one step reads more than 15 % of what the target reads for a token.

Why it hurts: each draft step reads the drafter once. With k drafts a round, a tenth of the target's reading costs k tenths of a
plain step before anything is verified.

Evidence: bytes of both; of a mixture of experts, what one token is routed to.

Remedy: a smaller draft vocabulary, one layer, a quantized head; fewer drafts.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.cost_parts import mixture, num_bytes, reads, step_bytes
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

LARGE = 0.15
# Below this a target is a toy, and overheads count, not bytes.
LEAST_TARGET_BYTES = 1_000_000_000


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    read, own = step_bytes(reads(target), mixture(target), 1.0), num_bytes(draft)
    if read < LEAST_TARGET_BYTES or own < LARGE * read:
        return
    yield Fault(
        severity="warning",
        confidence="medium",
        title=f"A draft step reads {100 * own / read:.0f} % of what the target reads for a token",
        evidence=(f"drafter {own / 1e9:.2f} GB, target {read / 1e9:.2f} GB a token",),
        remedy="Prune its vocabulary, quantize it, or draft fewer tokens; measure what a round costs with forced acceptance.",
        symptoms=both("cost"),
    )
