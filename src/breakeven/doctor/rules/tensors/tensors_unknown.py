"""The drafter holds tensors that this engine does not know.

Detects: names that are no part of an EAGLE-3 head in any release that was read, and resemble nothing that is missing.

Why it hurts: vLLM refuses unknown names and does not start. SGLang drops them without a word (drafters with latent attention:
with a warning), which is harmless only if nothing was trained to need them.

Evidence: the names.

Remedy: if they are leftovers of training (optimizer, verifier), remove them; if the architecture needs them, another engine or
release.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.checkpoints.headers import printable
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import is_known, misnamed
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told

SHOWN = 6


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3":
        return
    renamed = {name for name, _ in misnamed(draft)}
    unknown = [name for name in draft.tensors if name not in renamed and not is_known(draft.role(name), draft)]
    if not unknown:
        return
    refused = "vllm" in evidence.engines
    yield Fault(
        severity="error" if evidence.engine == "vllm" else "warning",
        confidence="high" if refused else "medium",
        title=f"{len(unknown)} tensors that are no part of an EAGLE-3 head: vLLM refuses them, SGLang drops them silently",
        evidence=tuple(f"{draft.tensors[name].file.name}: {printable(name)}" for name in unknown[:SHOWN]),
        remedy="Remove what training left behind; if the head was trained to need them, this engine cannot serve it.",
        symptoms=Symptoms(vllm="load-error", sglang="not known"),
    )
