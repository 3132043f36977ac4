"""A map although the drafter has the whole vocabulary.

Detects: d2t in a drafter whose draft_vocab_size equals vocab_size, or gives none.

Why it hurts: vLLM has no place for the map then and refuses to load it (seen in 0.32). SGLang does not mind. With
draft_vocab_size missing, vLLM also expects a head of the whole vocabulary.

Evidence: the sizes; the map's length.

Remedy: remove d2t and t2d where the map is the identity; else write the draft_vocab_size that the map has.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.vocabulary import vocabulary_map


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    info, vocab = draft.by_role.get("d2t"), draft.vocab
    given = draft.number("draft_vocab_size")
    if draft.method != "eagle3" or info is None or vocab is None or (given or vocab) != vocab or len(info.shape) != 1:
        return
    if info.shape[0] != vocab:
        return  # the size is missing or wrong: another rule's
    found = vocabulary_map(draft)
    is_identity = found is not None and not found.raw.any()
    yield Fault(
        severity="error" if evidence.engine == "vllm" else "warning",
        confidence="high",
        title="d2t is there although the drafter has the whole vocabulary, and vLLM has no place for it",
        evidence=(
            f"{info.file.name}: d2t has {info.shape[0]} entries",
            f"config.json: vocab_size is {vocab}, draft_vocab_size {given}",
        ),
        remedy="Remove d2t and t2d from the drafter."
        if is_identity
        else "The map is not the identity: reorder the head's rows by it, then remove d2t and t2d.",
        symptoms=Symptoms(vllm="load-error", sglang="nothing"),
        repairable=is_identity,
    )
