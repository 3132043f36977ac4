"""Auxiliary layer ids that the target does not have.

Detects: an id below 0, above the target's depth, or where its engine cannot capture a state.

Why it hurts: the engine captures fewer states than `fc` takes and dies at the first request. With one state left, SGLang finds it
as wide as the embedding and leaves fc out without a word (seen in 0.5.23). Copied configurations of a deeper target of the same
family look like this.

Evidence: the ids against num_hidden_layers. As layer inputs, 1 to n are possible, n being what leaves the last layer.

Remedy: take the ids from the training configuration of this target; the usual ones are 2, n/2, n-3 as layer inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from breakeven.doctor.drafter import language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import read_ids
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    depth = whole(language_config(target).get("num_hidden_layers"))
    if depth is None:
        return
    # a folder may say its ids once for each engine: that is one fault, of as many settings
    found = [
        (setting, ids, outside) for setting in draft.layer_ids if (ids := read_ids(setting)) and (outside := _outside(ids, depth))
    ]
    if not found:
        return
    _, ids, outside = found[0]
    yield Fault(
        severity="error",
        confidence="high",
        title=f"The auxiliary layer ids {outside} lie outside the target's {depth} layers",
        evidence=(*(str(setting) for setting, _, _ in found), f"{target.path.name}/config.json: num_hidden_layers is {depth}"),
        remedy=f"Take the ids from the training of this target; usual ones, as inputs: {[2, depth // 2, depth - 3]}.",
        symptoms=Symptoms(vllm="crash", sglang="floor" if len(ids) - len(outside) == 1 else "crash"),
    )


def _outside(ids: Sequence[int], depth: int) -> list[int]:
    return [one for one in ids if not 0 <= one <= depth]
