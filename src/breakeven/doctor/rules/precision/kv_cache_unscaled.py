"""The drafter's key-value cache is stored in 8 bits without scales.

Detects: an fp8 KV cache while the drafter has no k_scale and v_scale.

Why it hurts: its keys and values are stored with a scale of one. Where they exceed the format's range the drafts get worse
(reported: accept length 2.6 to 2.8 fell to 1.79); elsewhere nothing is seen.

Evidence: the flag; the drafter's tensors.

Remedy: keep the drafter's cache in 16 bits (vLLM: "kv_cache_dtype" in the speculative configuration), or calibrate scales.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch, draft = evidence.launch, evidence.draft
    assert launch is not None
    assert draft is not None
    if not launch.speculates or any(role.endswith(("k_scale", "v_scale")) for role in draft.by_role):
        return
    own = launch.spec("kv_cache_dtype")
    flag = own if own else launch.flag("--kv-cache-dtype")
    if not flag or not str(flag.value).lower().startswith(("fp8", "nvfp4", "fp4")):
        return
    yield Fault(
        severity="warning",
        confidence="low",
        title=f"The drafter's KV cache is {flag.value} without scales",
        evidence=(str(flag), f"no k_scale or v_scale among the drafter's {len(draft.tensors)} tensors"),
        remedy="Compare the accept length with a 16-bit cache"
        + (' ("kv_cache_dtype": "auto" in --speculative-config).' if launch.engine == "vllm" else "."),
        symptoms=both("all-positions-lower"),
    )
