"""The two keys of auxiliary layer ids name different states.

Detects: top-level ids and ids under eagle_config that are not one apart, as the two conventions make them.

Why it hurts: vLLM reads the first key and SGLang the second, so one of them feeds the drafter from layers that it was not trained
on. The drafter looks fine under one engine and fails under the other.

Evidence: both keys. Equal ids are one apart in meaning (vLLM counts inputs, SGLang outputs), except for DeepSeek and Kimi targets
on SGLang 0.5.13 and later, which take ids as inputs unless the first is 1.

Remedy: find the layers trained on; top level: as layer inputs; under eagle_config: each one lower.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import ids_in_use, ids_trained_on, read_ids
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    top, nested = draft.layer_ids
    outer, inner = read_ids(top), read_ids(nested)
    if outer is None or inner is None:
        return
    vllm, sglang = ids_in_use(evidence, "vllm"), ids_in_use(evidence, "sglang")
    if sglang is None or vllm is None or sorted(vllm.ids) == sorted(sglang.ids):
        return
    if evidence.engine is not None and len(ids_trained_on(draft, evidence.target)) == 1:
        return  # what was trained on is known: the engine in use is judged by itself
    yield Fault(
        severity="warning",
        confidence="high",
        title="The two keys of layer ids name different states: vLLM and SGLang feed the drafter from different layers",
        evidence=(
            f"{top} (vLLM: inputs {list(vllm.ids)})",
            f"{nested} (SGLang: inputs {list(sglang.ids)})",
        ),
        remedy="Find the layers it was trained on; write them as inputs at the top level, one lower under eagle_config.",
        symptoms=both("engines-differ"),
    )
