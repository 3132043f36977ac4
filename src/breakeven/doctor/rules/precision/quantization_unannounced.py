"""Quantized tensors that no configuration announces.

Detects: 8-bit or packed weights, or scales, in a drafter without quantization_config.

Why it hurts: engines take a drafter's quantization from its own configuration. Without it they build plain layers: vLLM refuses
the scales, SGLang drops them and loads the numbers as they are.

Evidence: the tensors; config.json and hf_quant_config.json.

Remedy: put the quantization_config of the export into config.json.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.quantization import quantization, quantized_modules
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    modules = quantized_modules(draft)
    if not modules or quantization(draft) is not None:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title=f"{len(modules)} matrices of the drafter are quantized, and no configuration says so",
        evidence=(
            "config.json: no quantization_config; no hf_quant_config.json",
            f"quantized: {', '.join(modules[:6]).replace('layer.', '')}",
        ),
        remedy="Put the quantization_config of the export into the drafter's config.json.",
        symptoms=Symptoms(vllm="load-error", sglang="floor"),
    )
