"""The drafter has no output head where the engine needs one.

Detects: no lm_head.weight, with a draft vocabulary of its own, or under SGLang.

Why it hurts: SGLang allocates a head and never fills it: exactly "accept len 1.00, accept rate 0.00". vLLM shares the target's
head, whose rows are those of the whole vocabulary: with a draft vocabulary of its own, every draft is another token (seen in
0.32: it starts, and accepts nothing). Drafters of the whole vocabulary that were trained with the target's head can leave it out
on vLLM.

Evidence: the tensor names; draft_vocab_size against vocab_size.

Remedy: copy the target's rows of the draft vocabulary into the drafter as lm_head.weight (`breakeven doctor --fix OUT_DIR`), if
it was trained with the target's head; else export it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import misnamed, stem
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3" or "lm_head" in {stem(role) for role in draft.by_role}:
        return
    if "lm_head.weight" in dict(misnamed(draft)).values() or draft.setting("tie_word_embeddings").value is True:
        return  # other rules'
    own_vocab = draft.number("draft_vocab_size")
    pruned = own_vocab is not None and draft.vocab is not None and own_vocab < draft.vocab
    asks_target = (
        "draft_vocab_size" in draft.folder.config and draft.folder.config["draft_vocab_size"] is None and not draft.is_latent
    )
    if not pruned and (evidence.engine == "vllm" or asks_target):
        return
    yield Fault(
        severity="error" if pruned or evidence.engine == "sglang" else "warning",
        confidence="high",
        title="The drafter has no lm_head"
        + (", and the target's does not fit its vocabulary" if pruned else "; SGLang leaves it random"),
        evidence=(
            f"{_files(evidence)}: no lm_head.weight",
            f"config.json: draft_vocab_size is {own_vocab}, vocab_size is {draft.vocab}",
        ),
        remedy="Put the target's rows of the draft vocabulary in as lm_head.weight if it was trained with the target's head.",
        symptoms=Symptoms(vllm="floor" if pruned else "nothing", sglang="floor"),
        repairable=evidence.target is not None,
    )


def _files(evidence: Evidence) -> str:
    assert evidence.draft is not None
    return ", ".join(sorted({info.file.name for info in evidence.draft.tensors.values()})[:3])
