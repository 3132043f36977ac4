"""d2t holds target ids where engines expect offsets.

Detects: a d2t whose values are target ids themselves, not their distance from the draft id.

Why it hurts: both engines add the draft id to every entry, so each draft names another token than the head meant. Nothing is
accepted from the first position on, and the text is right all the same. Where the sum leaves the vocabulary, vLLM dies at the first
draft (seen in 0.32: an index out of bounds).

Evidence: d2t read as offsets leaves the vocabulary, repeats ids or contradicts t2d, and read as ids it does none of that.

Remedy: subtract the index from each entry: d2t[i] - i. `breakeven doctor --fix OUT_DIR` does it. No retraining.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import CannotDecide, Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map


def check(evidence: Evidence) -> Iterator[Told]:
    assert evidence.draft is not None
    found = vocabulary_map(evidence.draft)
    if found is None:
        return
    first = f"{found.file}: d2t begins {found.raw[:6].tolist()} and ends {found.raw[-3:].tolist()}, {len(found.raw)} entries"
    if found.is_absolute is None and found.marked is None and (found.raw[1:] > found.raw[:-1]).all() and len(found.raw) > 1:
        yield CannotDecide(
            question="Does d2t hold offsets, as engines expect, or target ids?",
            evidence=(first, "both readings stay inside the vocabulary and ascend, and there is no t2d to compare with"),
            provide="the t2d tensor of the training checkpoint, or --parent DIR, the drafter that this one was made from",
        )
    if not found.is_absolute:
        return
    offsets = found.as_offsets
    outside = int((offsets >= found.vocab).sum()) if found.vocab is not None else 0
    yield Fault(
        severity="error",
        confidence="high" if found.marked is not None or outside else "medium",
        title="d2t holds target ids; engines read it as offsets from the draft id",
        evidence=(
            first,
            *((f"read as offsets, {outside} entries lie outside the vocabulary of {found.vocab}",) if outside else ()),
            *(("read as ids it is the set that t2d marks",) if found.matches_marks(found.raw) else ()),
        ),
        remedy="Store d2t[i] - i in place of d2t[i] (breakeven doctor --fix OUT_DIR); no retraining.",
        symptoms=Symptoms(vllm="crash" if outside else "floor", sglang="floor"),
        repairable=True,
    )
