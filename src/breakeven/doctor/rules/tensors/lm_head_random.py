"""The drafter's head is as it was initialised, while the rest was trained.

Detects: an lm_head whose sampled rows look like fresh draws, beside matrices that do not; unrelated to the target's rows where
there is a target.

Why it hurts: whatever the layer computes, the head names random tokens. Nothing is accepted. Exporters that lose the head, or a
trainer that kept it elsewhere, leave it so.

Evidence: row lengths and their distribution; the mean cosine with the target's rows of the same ids.

Remedy: export it again; if it was trained with the target's frozen head, copy those rows (`breakeven doctor --fix OUT_DIR` after
removing lm_head.weight).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import target_rows_of_head
from breakeven.doctor.weights import UNRELATED, likeness, looks_fresh, sampled, target_head


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    head = draft.by_role.get("lm_head.weight")
    if draft.method != "eagle3" or head is None or looks_fresh(head) is not True:
        return
    others = [
        looks_fresh(draft.by_role.get(role)) for role in ("fc.weight", "layer.mlp.gate_proj.weight", "layer.mlp.down_proj.weight")
    ]
    if all(one is not False for one in others):
        return  # nothing here looks trained: the whole head is judged elsewhere
    rows = sampled(head.shape[0])
    theirs = target_head(evidence.target) if evidence.target is not None else None
    ids = target_rows_of_head(draft, rows)
    found = likeness(head, rows, theirs, ids) if theirs is not None and ids is not None and max(ids) < theirs.shape[0] else None
    if found is not None and abs(found.cosine) > UNRELATED:
        return
    yield Fault(
        severity="error",
        confidence="high" if found is not None else "medium",
        title="The drafter's head is as it was initialised, while its layer was trained",
        evidence=(
            f"{head.file.name}: {len(rows)} sampled rows of lm_head look like fresh draws; fc or the MLP do not",
            *((f"mean cosine {found.cosine:.3f} with the target's rows of the same tokens",) if found is not None else ()),
        ),
        remedy="Export the drafter again; its head was lost on the way.",
        symptoms=both("floor"),
    )
