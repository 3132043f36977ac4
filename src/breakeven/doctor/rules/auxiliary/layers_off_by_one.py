"""The engine counts the auxiliary layer ids in the other convention.

Detects: ids written as layer outputs that the engine takes as layer inputs, or the other way round, so that every state comes
from the neighbouring layer.

Why it hurts: neighbouring layers are alike, so drafts are still accepted, a little less at every position (reported: about 0.1 of
accept length). Nothing is logged, and the same file changes its accept length between engines and releases.

Evidence: vLLM takes ids as layer inputs wherever it finds them. SGLang adds 1 to each; for DeepSeek and Kimi targets from 0.5.13
only where the first id is 1. What was trained on is known where both keys stand, where the ids are the usual layers in one of the
conventions, or where the first id is 1.

Remedy: write both keys, each in its engine's convention: the nested ids one lower than the top-level ones, the first nested one 1
where it can be (then every SGLang release reads it alike).
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
    if len(trained) != 1 or evidence.engine is None:
        return
    wanted = trained[0].ids
    used = ids_in_use(evidence, evidence.engine)
    if used is None or used.defaulted or len(used.ids) != len(wanted):
        return
    shifts = {mine - theirs for mine, theirs in zip(used.ids, wanted, strict=True)}
    if shifts not in ({1}, {-1}):
        return
    yield Fault(
        severity="error",
        confidence="medium" if used.doubt else "high",
        title=f"{evidence.engine_text} takes every auxiliary state one layer too {'late' if shifts == {1} else 'early'}",
        evidence=(
            f"layers in use, as inputs: {list(used.ids)} ({used.source})",
            f"layers trained on, as inputs: {list(wanted)} ({trained[0].why})",
            *((used.doubt,) if used.doubt else ()),
        ),
        remedy=(
            f'Put "{LAYER_IDS}": {list(wanted)} at the top level of config.json (layer inputs, vLLM) and '
            f"{[one - 1 for one in wanted]} under eagle_config (layer outputs, SGLang)."
        ),
        symptoms=Symptoms(vllm="all-positions-lower") if evidence.engine == "vllm" else Symptoms(sglang="all-positions-lower"),
        repairable=True,
    )
