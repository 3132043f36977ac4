"""tie_word_embeddings makes SGLang use the embeddings as the drafter's head.

Detects: tie_word_embeddings true in the drafter's configuration.

Why it hurts: SGLang then takes its embedding table for the head and puts the target's embeddings into it; the head that was
trained is dropped. With a draft vocabulary of its own, rows and ids do not even belong together. The key is often copied from a
small target.

Evidence: the key; whether the file holds an lm_head.

Remedy: tie_word_embeddings false, with lm_head.weight in the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag = draft.setting("tie_word_embeddings")
    if draft.method != "eagle3" or flag.value is not True:
        return
    has_head = "lm_head.weight" in draft.by_role
    yield Fault(
        severity="info" if evidence.engine == "vllm" and has_head else "error",
        confidence="high",
        title="tie_word_embeddings: SGLang takes the embeddings for the drafter's head"
        + (" and drops the trained one" if has_head else ""),
        evidence=(str(flag), f"lm_head.weight is {'in the file' if has_head else 'in no file'}", "SGLang models/llama_eagle3.py"),
        remedy='Set "tie_word_embeddings": false' + ("." if has_head else " and put lm_head.weight into the file."),
        symptoms=Symptoms(vllm="nothing" if has_head else "not known", sglang="floor"),
        repairable=has_head,
    )
