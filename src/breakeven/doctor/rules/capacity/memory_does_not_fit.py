"""Target and drafter do not fit into the devices.

Detects: weights of both over the tensor parallel size against the memory that the launch allows on each device, with the
drafter's and the target's KV cache of at least one full context.

Why it hurts: the server does not start, or starts with so small a cache that requests queue: memory fractions are set for the
target alone.

Evidence: bytes of the tensors; --gpu-memory-utilization or --mem-fraction-static; --gpu-memory.

Remedy: a larger tensor parallel size, a smaller or quantized drafter, or a larger fraction. The estimate leaves activations and
graphs out, so what is said not to fit certainly does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.checkpoints.folder import ModelFolder
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

_FRACTIONS = ("--gpu-memory-utilization", "--mem-fraction-static")
GIB = 1 << 30
# Below this much for the cache, a device holds next to no requests.
LITTLE_CACHE = 0.05


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target, memory = evidence.draft, evidence.target, evidence.gpu_memory_bytes
    assert draft is not None
    assert target is not None
    assert memory is not None
    launch = evidence.launch
    parallel = launch.tensor_parallel * (launch.number("--pipeline-parallel-size", "--pp-size") or 1) if launch is not None else 1
    fraction, told = 1.0, "the whole memory"
    if launch is not None and (flag := launch.flag(*_FRACTIONS)):
        try:
            fraction, told = float(str(flag.value)), str(flag)
        except ValueError:
            return
    if not 0 < fraction <= 1:
        return
    weights = (_bytes(target) + _draft_bytes(evidence)) / parallel
    allowed = memory * fraction
    left = allowed - weights
    if left > LITTLE_CACHE * memory:
        return
    fits = left > 0
    yield Fault(
        severity="warning" if fits else "error",
        confidence="high",
        title=(
            f"Weights leave {left / GIB:.1f} GiB a device for the KV caches"
            if fits
            else f"Weights of target and drafter take {weights / GIB:.1f} GiB a device, {allowed / GIB:.1f} GiB are allowed"
        ),
        evidence=(
            f"target {_bytes(target) / GIB:.1f} GiB, drafter {_draft_bytes(evidence) / GIB:.2f} GiB, on {parallel}",
            f"{memory / GIB:.0f} GiB a device, {told}",
        ),
        remedy="Use more devices, a larger memory fraction, or smaller weights.",
        symptoms=both("queueing" if fits else "load-error"),
    )


def _bytes(folder: ModelFolder) -> int:
    return sum(info.end - info.begin for info in folder.tensors.values())


def _draft_bytes(evidence: Evidence) -> int:
    """Without embeddings: both engines can share the target's."""
    assert evidence.draft is not None
    return sum(info.end - info.begin for role, info in evidence.draft.by_role.items() if role != "embed_tokens.weight")
