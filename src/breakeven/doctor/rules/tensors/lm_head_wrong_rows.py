"""The head's rows are the target's, but of other tokens than the map says.

Detects: an lm_head sliced from the target's head by another list of ids than the drafter's own map: by its offsets taken for ids,
or simply the first rows.

Why it hurts: row i scores another token than draft id i stands for, so every draft is a wrong token. Exporters that index the
full head with d2t, although it holds offsets, write this.

Evidence: sampled rows equal the target's rows at d2t[i] (or at i), not at i + d2t[i].

Remedy: slice the target's head at i + d2t[i] (`breakeven doctor --fix OUT_DIR`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map
from breakeven.doctor.weights import likeness, sampled, target_head

MOSTLY = 0.9


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    head, theirs, found = draft.by_role.get("lm_head.weight"), target_head(target), vocabulary_map(draft)
    if head is None or theirs is None or found is None or len(head.shape) != 2 or head.shape[0] != len(found.raw):
        return
    if found.is_absolute:
        return  # another rule's
    rows = np.array(sampled(head.shape[0]))
    right = found.as_offsets[rows]
    for name, ids in (("the offsets themselves taken for ids", found.raw[rows]), ("the first rows, whatever the map says", rows)):
        differing = (ids != right) & (ids >= 0) & (ids < theirs.shape[0]) & (right >= 0) & (right < theirs.shape[0])
        if differing.sum() < 4:
            continue
        mine = rows[differing].tolist()
        wrong = likeness(head, mine, theirs, ids[differing].tolist())
        proper = likeness(head, mine, theirs, right[differing].tolist())
        if wrong is not None and proper is not None and wrong.equal_share > MOSTLY and proper.equal_share < 1 - MOSTLY:
            yield Fault(
                severity="error",
                confidence="high",
                title="The head's rows are the target's rows of other tokens than its map says",
                evidence=(
                    f"{head.file.name}: {100 * wrong.equal_share:.0f} % of {wrong.num_rows} rows equal the target's at {name}",
                    f"{100 * proper.equal_share:.0f} % equal the rows at i + d2t[i]",
                ),
                remedy="Slice the target's head at i + d2t[i].",
                symptoms=both("floor"),
                repairable=True,
            )
            return
