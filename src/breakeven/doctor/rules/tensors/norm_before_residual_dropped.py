"""SGLang does not implement norm_before_residual.

Detects: norm_before_residual true (the default of the speculators trainer, and of Model-Optimizer's template for vLLM) on SGLang.

Why it hurts: the residual stream starts from the normed state in training and from the raw one in SGLang, so its scale is wrong:
the first position drops, deeper ones collapse. Nothing is logged, in any release read.

Evidence: the key, or its absence in a speculators folder, where vLLM takes it for true.

Remedy: serve it with vLLM, or train with norm_before_residual false.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag = draft.setting("norm_before_residual")
    unstated = draft.is_speculators and not flag.key
    if evidence.engine != "sglang" or draft.method != "eagle3" or not (flag.value is True or unstated):
        return
    yield Fault(
        severity="error",
        confidence="medium" if unstated else "high",
        title="The drafter was trained with norm_before_residual, which SGLang does not compute",
        evidence=(
            str(flag) + (" in a speculators folder, whose default is true" if unstated else ""),
            "SGLang models/llama_eagle3.py: no such flag in releases up to 0.5.23",
        ),
        remedy="Serve it with vLLM, or train it with norm_before_residual false.",
        symptoms=Symptoms(vllm="nothing", sglang="steep-decay"),
    )
