"""d2t and t2d name different tokens.

Detects: the set of i + d2t[i] against the tokens that t2d marks.

Why it hurts: training used t2d, serving uses d2t (engines ignore t2d). Where they differ, rows of the head belong to other tokens
than serving takes them for. One of the two was rebuilt, from other data or another tokenizer.

Evidence: how many tokens stand in only one of them.

Remedy: take both from the checkpoint that the head was trained with. If t2d is the trained one, d2t follows from it.
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
    if found is None or found.marked is None or found.is_absolute or not found.is_valid(found.as_offsets):
        return  # other rules'
    ids = found.as_offsets
    only_d2t, only_t2d = len(np.setdiff1d(ids, found.marked)), len(np.setdiff1d(found.marked, ids))
    if not only_d2t and not only_t2d:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title=f"d2t and t2d disagree: {only_d2t} of {len(ids)} draft tokens are not marked in t2d",
        evidence=(f"{found.file}: {only_d2t} tokens only in d2t, {only_t2d} only in t2d, which marks {len(found.marked)}",),
        remedy="Take both from the checkpoint that the head was trained with; one of them was rebuilt since.",
        symptoms=both("floor"),
    )
