"""A tensor parallel size that the drafter cannot have.

Detects: vLLM's draft_tensor_parallel_size that is neither 1 nor the target's; heads of the drafter that do not divide by it.

Why it hurts: the server does not start.

Evidence: the flags; num_attention_heads and num_key_value_heads of the drafter.

Remedy: draft_tensor_parallel_size 1, or the target's.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch, draft = evidence.launch, evidence.draft
    assert launch is not None
    assert draft is not None
    if not launch.speculates:
        return
    target_size = launch.tensor_parallel
    size, told = target_size, f"launch command: tensor parallel size {target_size}"
    if launch.engine == "vllm" and (given := launch.spec("draft_tensor_parallel_size")):
        try:
            size, told = int(str(given.value)), str(given)
        except ValueError:
            return
        if size not in (1, target_size):
            yield _fault(
                f"The drafter cannot be split {size} ways beside a target split {target_size} ways", (told,), launch.engine
            )
            return
    heads, kv_heads = draft.number("num_attention_heads"), draft.number("num_key_value_heads")
    uneven = [
        f"config.json: {name} is {count}"
        for name, count in (("num_attention_heads", heads), ("num_key_value_heads", kv_heads))
        if count and count % size and not (name == "num_key_value_heads" and size % count == 0)
    ]
    if uneven and not draft.is_latent and size > 1:
        yield _fault(f"The drafter's heads cannot be split {size} ways", (told, *uneven), launch.engine)


def _fault(title: str, evidence: tuple[str, ...], engine: str) -> Fault:
    return Fault(
        severity="error",
        confidence="high",
        title=title,
        evidence=evidence,
        remedy='Put "draft_tensor_parallel_size": 1 into --speculative-config.'
        if engine == "vllm"
        else "Choose a tensor parallel size that divides the drafter's heads; SGLang splits it as the target.",
        symptoms=Symptoms(vllm="load-error") if engine == "vllm" else Symptoms(sglang="load-error"),
    )
