"""The drafter's own embeddings have nothing to do with the target's.

Detects: sampled rows of embed_tokens whose cosine with the target's rows is around zero.

Why it hurts: vLLM uses a drafter's own embeddings wherever they differ from the target's, so every draft starts from noise.
SGLang always puts the target's in their place, so the same folder works there. Exporters that keep a table which training never
touched leave it random.

Evidence: the mean cosine of sampled rows; equal lengths with other directions mean a rotation, which is another rule's.

Remedy: remove embed_tokens from the drafter: both engines then take the target's.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.weights import UNRELATED, body_is_fresh, embeddings_compared, looks_fresh


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    compared = embeddings_compared(draft, target)
    if compared is None:
        return
    own, found = compared
    if abs(found.cosine) > UNRELATED or found.same_lengths:
        return
    fresh = looks_fresh(own)
    harmless = evidence.engine == "sglang" or body_is_fresh(draft)
    yield Fault(
        severity="info" if harmless else "error" if evidence.engine == "vllm" else "warning",
        confidence="high",
        title=f"The drafter's embeddings {'look random' if fresh else 'belong to another model'}: vLLM uses them, SGLang does not",
        evidence=(
            f"{own.file.name}: embed_tokens, mean cosine {found.cosine:.3f} with {target.path.name} over {found.num_rows} rows",
            *(("its rows are all equally long, as initialised",) if fresh else ()),
        ),
        remedy="Remove embed_tokens.weight from the drafter; both engines then use the target's.",
        symptoms=Symptoms(vllm="floor", sglang="nothing"),
        repairable=True,
    )
