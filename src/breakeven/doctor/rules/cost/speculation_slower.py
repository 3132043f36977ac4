"""Drafts are accepted, and serving is slower all the same.

Detects: an arm of a run that accepts well above the floor while its speedup over the baseline lies below 1 with its whole
interval; or two logs, one without drafts, that show it at an equal running batch.

Why it hurts: a round costs more plain steps than it yields tokens. Acceptance is not what is missing; the cost is.

Evidence: accept length, speedup and their ratio, the cost of a round. What raises it has rules of its own: graphs that are off or
too small, a tree that is too wide, experts that verification wakes, a drafter that is large for its target, a saturated target,
collectives.

Remedy: fewer drafts at this load, the causes named by other rules, or none at all (breakeven schedule).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.baseline import dear_rounds
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told

ENOUGH_LAUNCHES = 3


def check(evidence: Evidence) -> Iterator[Told]:
    for one in dear_rounds(evidence):
        yield Seen(
            sign="cost",
            severity="error",
            confidence="high" if one.num_launches >= ENOUGH_LAUNCHES else "medium",
            title=f"{one.where}: accept length {one.accept_length:.2f}, but a round costs {one.cost.value:.2f} plain steps",
            evidence=(str(one),),
            remedy="Lower the cost of a round, or draft less at this load. A drafter would need an accept length of "
            f"{one.cost.value:.2f} to break even here; a wider tree raises the cost with the length.",
            refutes=(f"A poor drafter: {one.accept_length - 1:.2f} drafts a round are accepted; the rounds are too dear.",),
        )
