"""The engine does not find the drafter's auxiliary layer ids and uses its own default.

Detects: ids that stand where this engine and release do not look, while the default layers are others than those trained on.

Why it hurts: the drafter is fed states of layers that it never saw. The server is healthy and says nothing, or one line in its log;
almost no draft is accepted (reported: first position 3.6 %, second none, throughput 0.7 to 0.8 of plain).

Evidence: vLLM reads eagle_aux_hidden_state_layer_ids at the top level of config.json; under eagle_config only from 0.22 and only in
model runner V1. SGLang reads eagle_config.eagle_aux_hidden_state_layer_ids and nothing else. Default of both: layer inputs
2, n/2, n-3.

Remedy: write both keys: the top-level one as layer inputs for vLLM, the nested one as layer outputs (one lower) for SGLang.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import LAYER_IDS
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import ids_in_use, ids_trained_on
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    trained = ids_trained_on(draft, evidence.target)
    if not trained or draft.method not in ("eagle3", None):
        return
    for engine in evidence.engines:
        used = ids_in_use(evidence, engine)
        if used is None or not used.defaulted or any(sorted(used.ids) == sorted(one.ids) for one in trained):
            continue
        readings = " or ".join(f"{list(one.ids)} ({one.why})" for one in trained)
        only = trained[0].ids if len(trained) == 1 else None
        key = f"{LAYER_IDS} at the top level of config.json, as layer inputs"
        if engine == "sglang":
            key = f"{LAYER_IDS} under eagle_config in config.json, as layer outputs"
        wanted = "" if only is None else f": {list(only) if engine == 'vllm' else [one - 1 for one in only]}"
        yield Fault(
            severity="error",
            confidence="medium" if used.doubt else "high",
            title=f"{'vLLM' if engine == 'vllm' else 'SGLang'} feeds the drafter from its default layers, not those trained on",
            evidence=(
                f"layers in use, as inputs: {list(used.ids)} ({used.source})",
                f"layers trained on, as inputs: {readings}",
                *((used.doubt,) if used.doubt else ()),
            ),
            remedy=f"Put {key}{wanted}.",
            symptoms=Symptoms(vllm="floor") if engine == "vllm" else Symptoms(sglang="floor"),
            repairable=only is not None,
        )
