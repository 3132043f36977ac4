"""Another number of auxiliary layers than `fc` takes states.

Detects: ids whose number differs from the width of fc.weight over the target's hidden size.

Why it hurts: the engine joins as many states as there are ids, and the product with fc fails: at start, or at the first request.

Evidence: fc.weight's shape; the ids of the key that the engine reads. Trainers that also capture the last layer for their own
targets append its id, which is no input of fc.

Remedy: list exactly the layers that fc takes; num_aux_hidden_states has to agree where it is given.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import read_ids
from breakeven.doctor.signs import Symptoms, both
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import drafter_fact


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    count = draft.num_auxiliary
    if count is None or draft.method != "eagle3":
        return
    fc = draft.by_role["fc.weight"]
    shape = f"{fc.file.name}: fc.weight is {list(fc.shape)}, {count} states of {draft.target_hidden}"
    depth = whole(language_config(evidence.target).get("num_hidden_layers")) if evidence.target is not None else None
    top, nested = draft.layer_ids
    for engine, setting in (("vllm", top), ("sglang", nested)):
        ids = read_ids(setting)
        if ids is None or len(ids) == count or engine not in evidence.engines:
            continue
        # captured for the trainer's own targets; an engine that is known captures it all the same, and fc does not take it
        only_last = evidence.engine is None and len(ids) == count + 1 and depth is not None and ids[-1] == depth
        yield Fault(
            severity="info" if only_last else "error",
            confidence="medium" if only_last else "high",
            title=f"{len(ids)} auxiliary layers, but fc takes {count} states",
            evidence=(str(setting), shape),
            remedy=f"List the {count} layers that fc was trained on.",
            symptoms=Symptoms(vllm="crash") if engine == "vllm" else Symptoms(sglang="crash"),
        )
    given = draft.setting("num_aux_hidden_states")
    if given.key and whole(given.value) != count:
        yield Fault(
            severity="error",
            confidence="high",
            title=f"num_aux_hidden_states is {given.value!a}, but fc takes {count} states",
            evidence=(str(given), shape),
            remedy=f'Set "num_aux_hidden_states": {count} in config.json.',
            symptoms=both("load-error"),
            repairable=True,
        )
    elif count != 3 and "sglang" in evidence.engines:
        known = drafter_fact("sglang", "num_aux_hidden_states", evidence.version)
        if evidence.engine == "sglang" and known.settled == "always 3":
            yield Fault(
                severity="error",
                confidence="high",
                title=f"{evidence.engine_text} builds fc for 3 states, this one takes {count}",
                evidence=(shape, *known.sources),
                remedy="Serve it with SGLang 0.5.12.post1 or later.",
                symptoms=Symptoms(sglang="load-error"),
            )
