"""The drafter's attention has biases that SGLang drops.

Detects: attention_bias true, or q/k/v biases in the file, on SGLang; biases in the file with attention_bias false on vLLM.

Why it hurts: SGLang builds the layer without biases in every release read and drops the tensors silently, so queries and keys are
off at every position. vLLM reads them if attention_bias is true and drops them silently otherwise (seen in 0.32).

Evidence: attention_bias; the tensors.

Remedy: serve it with vLLM, or train without biases; on vLLM set attention_bias true.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms, both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    biases = [role for role in draft.by_role if role.startswith("layer.self_attn.") and role.endswith("_proj.bias")]
    flag = draft.setting("attention_bias")
    if draft.method != "eagle3":
        return
    held = f"{len(biases)} bias tensors in the file" if biases else "no bias tensors in the file"
    if "sglang" in evidence.engines and (biases or flag.value is True):
        yield Fault(
            severity="error" if evidence.engine == "sglang" else "warning",
            confidence="high" if biases else "medium",
            title="SGLang serves the drafter without its attention biases",
            evidence=(str(flag), held),
            remedy="Serve it with vLLM, or train it with attention_bias false.",
            symptoms=Symptoms(vllm="nothing" if flag.value is True else "all-positions-lower", sglang="all-positions-lower"),
        )
    elif evidence.engine == "vllm" and biases and flag.value is not True:
        yield Fault(
            severity="error",
            confidence="high",
            title="The drafter has attention biases, but its configuration says that it has none",
            evidence=(str(flag), held),
            remedy='Set "attention_bias": true.',
            symptoms=both("all-positions-lower"),
            repairable=True,
        )
