"""Auxiliary layer ids that fit both conventions.

Detects: ids under one key, or the same ids under both, that are not the usual layers in either convention, so that nothing says
whether layer inputs or layer outputs are meant.

Why it hurts: in one of the engines every state may come from the neighbouring layer, which costs acceptance at all positions
without a word in any log. Which engine that is cannot be seen from the folder.

Evidence: the ids, and the two readings. Trainers differ: SpecForge and TorchSpec write outputs under eagle_config, speculators
writes inputs at the top level, recipes of Model-Optimizer for vLLM write inputs under eagle_config.

Remedy: find the trainer's own convention, then write both keys, the nested ids one lower.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import ids_in_use, ids_trained_on
from breakeven.doctor.told import CannotDecide, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    trained = ids_trained_on(draft, evidence.target)
    if len(trained) < 2:
        return
    top, nested = draft.layer_ids
    used = ids_in_use(evidence, evidence.engine) if evidence.engine is not None else None
    if used is not None and used.defaulted:
        return  # another rule's: neither reading is served
    yield CannotDecide(
        question="Are the auxiliary layer ids layer inputs or layer outputs? One of the engines would be one layer off",
        evidence=(
            *(str(key) for key in (top, nested) if key.key),
            *(f"{list(one.ids)} as inputs, if {one.why}" for one in trained),
            *((f"{evidence.engine_text} takes {list(used.ids)}",) if used is not None else ()),
        ),
        provide="the trainer's name or its configuration of captured layers"
        + (", and --target DIR, whose depth shows the usual layers" if evidence.target is None else ""),
    )
