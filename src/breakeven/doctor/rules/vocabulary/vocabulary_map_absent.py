"""The drafter has a vocabulary of its own and no map to the target's.

Detects: draft_vocab_size below vocab_size and no d2t tensor, or one that is all zero and so stands for the first ids.

Why it hurts: the engine takes draft id i for target id i, the first entries of the vocabulary, without an error. Every draft is
another token than the head meant; the text stays right, and nothing is accepted.

Evidence: the two sizes; the tensor names; t2d, if that at least is there.

Remedy: put the map back that it was trained with: d2t[i] = id of the i-th token marked in t2d, less i. No retraining.
`breakeven doctor --fix OUT_DIR` derives it from t2d.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import misnamed
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import VocabularyMap, vocabulary_map


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method in ("eagle3", None) and (found := vocabulary_map(draft)) is not None and not found.raw.any():
        yield from _all_zero(draft.draft_vocab, draft.vocab, found)
    if draft.method not in ("eagle3", None) or "d2t" in draft.by_role or "d2t" in dict(misnamed(draft)).values():
        return
    size, vocab = draft.draft_vocab, draft.vocab
    if size is None or vocab is None or size >= vocab:
        return
    has_marks = "t2d" in draft.by_role
    parent_has = evidence.parent is not None and "d2t" in evidence.parent.by_role
    source = (
        "t2d, which marks the tokens"
        if has_marks
        else "--parent, which has it"
        if parent_has
        else "the training checkpoint or its data"
    )
    yield Fault(
        severity="error",
        confidence="high",
        title=f"The map from the draft vocabulary to the target's (d2t) is missing: engines take the first {size} ids",
        evidence=(
            f"config.json: draft_vocab_size is {size}, vocab_size is {vocab}",
            f"no tensor d2t in {len(draft.tensors)} tensors" + ("; t2d is there" if has_marks else "; no t2d either"),
        ),
        remedy=f"Restore d2t as offsets from {source}; the weights are fine, no retraining.",
        symptoms=both("floor"),
        repairable=has_marks,
    )


def _all_zero(size: int | None, vocab: int | None, found: VocabularyMap) -> Iterator[Told]:
    """A map that an exporter allocated and never filled; t2d, where it is there, says whether the first ids were meant."""
    if size is None or vocab is None or size >= vocab or found.marked is not None:
        return
    yield Fault(
        severity="warning",
        confidence="medium",
        title=f"d2t is all zero, so the draft vocabulary is the first {size} ids; trained ones are the most frequent tokens",
        evidence=(f"{found.file}: d2t has {len(found.raw)} zeros", f"config.json: vocab_size is {vocab}, no t2d"),
        remedy="Compare with the training checkpoint's d2t and restore it if it differs; no retraining.",
        symptoms=both("floor"),
    )
