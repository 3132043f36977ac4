"""A tensor stands under another name than the engine looks for.

Detects: an unknown tensor name beside a missing tensor of nearly the same name.

Why it hurts: SGLang passes over names that it does not know without a word, and what it misses stays as it was allocated: nothing
is accepted. vLLM refuses unknown names and does not start.

Evidence: the two names. vLLM reads midlayer.* and layers.0.*, without model. in front; SGLang reads both, before 0.5.12
midlayer.* only.

Remedy: rename it (`breakeven doctor --fix OUT_DIR`).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.checkpoints.headers import printable
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import misnamed
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method not in ("eagle3", None):
        return
    pairs = misnamed(draft)
    if not pairs:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title=f"{len(pairs)} tensor{'s stand' if len(pairs) > 1 else ' stands'} under a name that no engine looks for",
        evidence=tuple(f"{draft.tensors[name].file.name}: {printable(name)} in place of {wanted}" for name, wanted in pairs[:6]),
        remedy=f"Rename {', '.join(f'{printable(name)} to {wanted}' for name, wanted in pairs[:6])}.",
        symptoms=Symptoms(vllm="load-error", sglang="floor"),
        repairable=True,
    )
