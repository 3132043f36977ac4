"""The head is the target's own, sliced to the draft vocabulary.

Detects: sampled rows of lm_head that equal the target's rows of the same tokens.

Why it hurts: by itself it does not: speculators and others freeze the head. In a drafter whose trainer trains the head, it means
that this part was never updated, or was replaced at export.

Evidence: the share of equal rows.

Remedy: none, if the trainer freezes the head.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import target_rows_of_head
from breakeven.doctor.weights import likeness, sampled, target_head

MOSTLY = 0.95


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    head, theirs = draft.by_role.get("lm_head.weight"), target_head(target)
    if head is None or theirs is None or len(head.shape) != 2:
        return
    rows = sampled(head.shape[0])
    ids = target_rows_of_head(draft, rows)
    if ids is None or max(ids, default=0) >= theirs.shape[0]:
        return
    found = likeness(head, rows, theirs, ids)
    if found is None or found.equal_share < MOSTLY:
        return
    yield Fault(
        severity="info",
        confidence="high",
        title="The head is the target's own, sliced to the draft vocabulary"
        + (" (speculators freezes it)" if draft.is_speculators else ""),
        evidence=(
            f"{head.file.name}: {100 * found.equal_share:.0f} % of {found.num_rows} sampled rows equal {target.path.name}'s",
        ),
        remedy="Nothing to do if the trainer freezes the head; if it trains it, its weights were lost at export.",
        symptoms=both("nothing"),
    )
