"""The drafter's configuration announces a quantization that its tensors do not have.

Detects: a quantization_config that covers matrices which are stored plain, without scales; typically copied from the target.

Why it hurts: the engine builds quantized layers and finds no parameters for them. Where the format packs its weights under other
names, vLLM refuses the plain ones; else it casts them and multiplies by scales that nobody set (seen in 0.32: it starts, and
accepts nothing). SGLang passes over names that it does not know.

Evidence: quantization_config; the tensors.

Remedy: remove quantization_config, or list the plain matrices under its exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.quantization import Quantization, quantization
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    found: Quantization | None = quantization(draft)
    if found is None or not found.covers_all_linear:
        return
    bare = [module for module in found.plain if module not in found.excepted and module not in ("lm_head", "embed_tokens", "fc")]
    if not bare:
        return
    copied = not found.quantized
    yield Fault(
        severity="error",
        confidence="high" if copied else "medium",
        title=(
            "The drafter's configuration announces a quantization that none of its tensors has"
            if copied
            else f"{len(bare)} of the drafter's matrices are plain, but its quantization covers them"
        ),
        evidence=(
            f"{found.source}: method {found.method}",
            f"stored plain and not excepted: {', '.join(bare[:6]).replace('layer.', '')}",
        ),
        remedy="Remove quantization_config from the drafter."
        if copied
        else "List them under the exceptions of quantization_config.",
        symptoms=Symptoms(vllm="load-error" if found.is_packed else "floor", sglang="floor"),
        repairable=copied,
    )
