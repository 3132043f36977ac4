"""The map differs from that of the drafter this one was made from.

Detects: another d2t than the parent's, for heads of equal size.

Why it hurts: fine-tuning that counts its own data's tokens builds a new map, while the head's rows keep the meaning they had:
rows no longer belong to the ids. Training accuracy does not show it, serving accepts next to nothing.

Evidence: the share of entries that differ; whether the head's rows are the parent's, or follow the new map.

Remedy: the parent's d2t and t2d; no retraining if the rows were never moved.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map
from breakeven.doctor.weights import RELATED, likeness


def check(evidence: Evidence) -> Iterator[Told]:
    draft, parent = evidence.draft, evidence.parent
    assert draft is not None
    assert parent is not None
    mine, theirs = vocabulary_map(draft), vocabulary_map(parent)
    if mine is None or theirs is None or len(mine.raw) != len(theirs.raw):
        return
    differing = np.flatnonzero(mine.raw != theirs.raw)
    if not len(differing):
        return
    head, before = draft.by_role.get("lm_head.weight"), parent.by_role.get("lm_head.weight")
    rows = [int(one) for one in differing[np.linspace(0, len(differing) - 1, min(48, len(differing))).astype(int)]]
    kept = likeness(head, rows, before, rows) if head is not None and before is not None and head.shape == before.shape else None
    still = kept is not None and kept.cosine > RELATED
    yield Fault(
        severity="error",
        confidence="high" if still else "medium",
        title=f"The vocabulary map was rebuilt: {100 * len(differing) / len(mine.raw):.0f} % of d2t differ from the parent's",
        evidence=(
            f"{mine.file}: {len(differing)} of {len(mine.raw)} entries of d2t differ from {parent.folder.path.name}",
            *(
                (f"rows of lm_head at those entries still resemble the parent's (mean cosine {kept.cosine:.2f})",)
                if still and kept
                else ()
            ),
        ),
        remedy="Put the parent's d2t and t2d back; the head's rows belong to them. No retraining.",
        symptoms=both("floor"),
        repairable=still,
    )
