"""d2t points outside the target's vocabulary.

Detects: entries that give a target id below 0 or at or above vocab_size, read as offsets.

Why it hurts: an index out of bounds: a device-side assert at the first draft, or other tokens' scores.

Evidence: how many entries, and the extreme ids.

Remedy: the map of the checkpoint that this head was trained with.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map


def check(evidence: Evidence) -> Iterator[Told]:
    assert evidence.draft is not None
    found = vocabulary_map(evidence.draft)
    if found is None or found.vocab is None or found.is_absolute:
        return
    ids = found.as_offsets
    outside = int(((ids < 0) | (ids >= found.vocab)).sum())
    if outside:
        yield Fault(
            severity="error",
            confidence="high",
            title=f"{outside} entries of d2t point outside the vocabulary",
            evidence=(f"{found.file}: i + d2t[i] reaches from {int(ids.min())} to {int(ids.max())}, vocab_size is {found.vocab}",),
            remedy="Restore the map of the checkpoint that this head was trained with.",
            symptoms=both("crash"),
        )
