"""Tensor names begin with model., which vLLM does not expect in a drafter.

Detects: model.midlayer.*, model.layers.0.*, model.fc and the like.

Why it hurts: vLLM puts model. in front by itself and then finds no place for model.model.*; it does not start. SGLang reads both.

Evidence: the names.

Remedy: remove the prefix (`breakeven doctor --fix OUT_DIR`).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    names = [name for name in draft.tensors if name.startswith("model.")]
    if draft.method != "eagle3" or not names or "vllm" not in evidence.engines:
        return
    yield Fault(
        severity="error" if evidence.engine == "vllm" else "warning",
        confidence="high" if evidence.engine == "vllm" else "medium",
        title=f"{len(names)} tensor names begin with model., and vLLM looks for them without",
        evidence=(
            f"{draft.tensors[names[0]].file.name}: {names[0]}",
            "vLLM models/llama_eagle3.py (read in 0.32) adds the prefix itself",
        ),
        remedy="Remove model. from the names.",
        symptoms=Symptoms(vllm="load-error", sglang="nothing"),
        repairable=True,
    )
