"""draft_vocab_size is missing from the configuration.

Detects: no draft_vocab_size, with a head of fewer rows than the vocabulary, or under SGLang.

Why it hurts: vLLM takes the whole vocabulary for the draft's and refuses the smaller head. SGLang reads the key without a default
and stops with an AttributeError; null means the target's head there.

Evidence: the key; lm_head's rows, d2t's length.

Remedy: write draft_vocab_size, the number of rows of lm_head.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    head, table = draft.by_role.get("lm_head.weight"), draft.by_role.get("d2t")
    if draft.method != "eagle3" or draft.setting("draft_vocab_size").key or draft.vocab is None:
        return
    rows = next((info.shape[0] for info in (head, table) if info is not None and info.shape), None)
    pruned = rows is not None and rows < draft.vocab
    is_null = "draft_vocab_size" in draft.folder.config
    on_sglang = evidence.engine == "sglang" and not is_null and draft.setting("tie_word_embeddings").value is not True
    if not pruned and not on_sglang:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title="draft_vocab_size is "
        + ("null" if is_null else "missing")
        + (f", and the head has {rows} rows of {draft.vocab}" if pruned else ""),
        evidence=(
            f"config.json: draft_vocab_size is {'null' if is_null else 'absent'}, vocab_size is {draft.vocab}",
            *((f"{head.file.name}: lm_head.weight is {list(head.shape)}",) if head is not None else ()),
        ),
        remedy=f'Set "draft_vocab_size": {rows or draft.vocab}.',
        symptoms=Symptoms(vllm="load-error" if pruned else "nothing", sglang="floor" if is_null else "load-error"),
        repairable=True,
    )
