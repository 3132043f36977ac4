"""The exceptions of the drafter's quantization name parts of layers that engines fuse.

Detects: exceptions such as q_proj, k_proj, v_proj or gate_proj, up_proj, without the fused names, for matrices that are stored
plain; or exceptions for only some parts of a fused layer.

Why it hurts: engines join q, k and v into qkv_proj, gate and up into gate_up_proj. If the exception is looked up under the fused
name, it is missed, the layer is built quantized and the plain tensors are dropped. A layer of which one part is quantized and
another is not cannot be built at all.

Evidence: the list; the tensors.

Remedy: add the fused names to the list (`breakeven doctor --fix OUT_DIR`).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.quantization import FUSED, quantization
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    found = quantization(draft)
    if found is None:
        return
    missed, mixed = [], []
    for fused, parts in FUSED.items():
        present = [part for part in parts if part in found.plain or part in found.quantized]
        plain = [part for part in present if part in found.plain]
        if plain and len(plain) < len(present):
            mixed.append(f"{fused}: {', '.join(plain)} plain, the others quantized".replace("layer.", ""))
        elif plain and all(part in found.excepted for part in plain) and not found.excepts(fused):
            missed.append(fused.rpartition(".")[2])
    if not missed and not mixed:
        return
    yield Fault(
        severity="error",
        confidence="high" if mixed else "medium",
        title=(
            "Parts of one fused layer are quantized and others are not"
            if mixed
            else f"The exceptions name parts of {' and '.join(missed)}, which engines look up under the fused name"
        ),
        evidence=(f"{found.source}: exceptions {', '.join(found.exceptions[:8])}", *mixed),
        remedy=f"Add {', '.join(missed)} to the exceptions." if missed else "Quantize all parts of a fused layer, or none.",
        symptoms=Symptoms(vllm="load-error" if mixed else "not known", sglang="floor"),
        repairable=bool(missed) and not mixed,
    )
