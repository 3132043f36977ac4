"""The drafter was made for another vocabulary than the target's.

Detects: vocab_size of the drafter against the target's.

Why it hurts: token ids mean other things, or maps point past the end. A drafter of another target of the family, or of the same
target with its vocabulary padded otherwise, looks like this.

Evidence: the two sizes. A padded vocabulary (a multiple of 64 above the tokenizer's) is the harmless case, and vLLM then still
needs a map.

Remedy: the drafter made for this target.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

# Padding of embedding tables to a multiple stays below this.
PADDING = 1024


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    vocab = whole(language_config(target).get("vocab_size"))
    if vocab is None or draft.vocab is None or vocab == draft.vocab:
        return
    padded = abs(vocab - draft.vocab) < PADDING and max(vocab, draft.vocab) % 64 == 0
    yield Fault(
        severity="warning" if padded else "error",
        confidence="medium" if padded else "high",
        title=f"The drafter was made for a vocabulary of {draft.vocab}, the target has {vocab}" + (" (padding?)" if padded else ""),
        evidence=(str(draft.setting("vocab_size")), f"{target.path.name}/config.json: vocab_size is {vocab}"),
        remedy="Use the drafter that was made for this target."
        if not padded
        else "Check that both count the same tokenizer's tokens.",
        symptoms=both("floor" if not padded else "not known"),
    )
