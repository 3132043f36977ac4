"""d2t names tokens twice, or not in ascending order.

Detects: target ids i + d2t[i] that repeat or descend.

Why it hurts: trainers cut the target's distribution with a mask, so row i of the head is the i-th marked token: ascending. A map
in another order gives rows other tokens than they were trained for; a token named twice takes another one's row.

Evidence: how many ids repeat, how many steps go down.

Remedy: the map of the checkpoint that this head was trained with.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map


def check(evidence: Evidence) -> Iterator[Told]:
    assert evidence.draft is not None
    found = vocabulary_map(evidence.draft)
    if found is None or found.is_absolute:
        return
    ids = found.as_offsets
    if found.vocab is not None and ((ids < 0) | (ids >= found.vocab)).any():
        return  # another rule's
    repeated, down = len(ids) - len(np.unique(ids)), int((np.diff(ids) <= 0).sum())
    if not down:
        return
    yield Fault(
        severity="error",
        confidence="high" if repeated else "medium",
        title=f"d2t names {repeated} tokens twice" if repeated else "d2t is not in ascending order of target ids",
        evidence=(f"{found.file}: of {len(ids)} ids i + d2t[i], {repeated} repeat and {down} are not above the one before",),
        remedy="Restore the map of the checkpoint that this head was trained with; t2d gives it if it is intact.",
        symptoms=both("floor"),
        repairable=found.marked is not None and len(found.marked) == len(ids),
    )
