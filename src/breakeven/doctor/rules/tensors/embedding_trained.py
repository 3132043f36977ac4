"""The drafter trained embeddings of its own, which SGLang overwrites.

Detects: sampled rows of embed_tokens that resemble the target's but are not equal to them.

Why it hurts: vLLM keeps a drafter's embeddings that differ from the target's. SGLang always uses the target's, so the drafter
sees other inputs than it was trained on and is accepted moderately less, under SGLang only.

Evidence: the share of sampled rows that are equal, and the mean cosine.

Remedy: serve it with vLLM, or train with the target's embeddings frozen.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.weights import RELATED, body_is_fresh, embeddings_compared

MOSTLY_EQUAL = 0.9
# One tiny step of an optimizer, or another rounding, is no training.
PRACTICALLY_EQUAL = 0.999


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    compared = embeddings_compared(draft, target)
    if compared is None:
        return
    own, found = compared
    if found.cosine < RELATED or found.equal_share > MOSTLY_EQUAL or found.cosine > PRACTICALLY_EQUAL:
        return
    yield Fault(
        severity="info" if evidence.engine == "vllm" or body_is_fresh(draft) else "warning",
        confidence="high" if evidence.engine == "sglang" else "medium",
        title="The drafter has embeddings of its own; SGLang puts the target's in their place",
        evidence=(
            f"{own.file.name}: embed_tokens, {100 * found.equal_share:.0f} % of {found.num_rows} rows equal the target's",
            f"mean cosine {found.cosine:.3f}",
        ),
        remedy="Serve it with vLLM, or train with frozen embeddings.",
        symptoms=Symptoms(vllm="nothing", sglang="all-positions-lower"),
    )
