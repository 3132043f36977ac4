"""The drafter was made for another size of target.

Detects: the width of the states that the drafter takes against the target's hidden_size; a depth that it states, or auxiliary
layer ids that are the usual ones of a target of another depth.

Why it hurts: models of one family share names, tokenizer and vocabulary, so nothing else shows that a head of the 8B lies beside
the 70B. Of another width it does not run. Of the same width (Qwen3-1.7B and 30B-A3B have one) it loads, and predicts another
model from layers at other places.

Evidence: hidden_size or target_hidden_size of the drafter, with the width of fc where it agrees; ids 2, n/2, n-3 of another n.

Remedy: the drafter that was made for this target.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import Drafter, language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import read_ids
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

# Heads that live on the target's own states; a whole small model may have any width.
_HEADS = ("eagle3", "eagle", "medusa", "mtp", "dflash")
_REMEDY = "Use the drafter that was made for this target."


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    if draft.method not in _HEADS:
        return
    served = language_config(target)
    width, depth = whole(served.get("hidden_size")), whole(served.get("num_hidden_layers"))
    mine = _width_of_dflash(draft) if draft.method == "dflash" else draft.target_hidden
    if width is not None and mine is not None and mine != width:
        fc = draft.by_role.get("fc.weight")
        if draft.method != "dflash" and fc is not None and (len(fc.shape) != 2 or fc.shape[1] % mine):
            return  # the drafter's own files disagree (shapes-contradict)
        told = draft.setting("target_hidden_size", "hidden_size") if draft.method != "dflash" else draft.setting("dflash_config")
        shown = (f"{fc.file.name}: fc.weight is {list(fc.shape)}",) if fc is not None else ()
        yield Fault(
            severity="error",
            confidence="high",
            title=f"The drafter was made for a target of width {mine}, this one has {width}: another size of target",
            evidence=(str(told), *shown, f"{target.path.name}/config.json: hidden_size is {width}"),
            remedy=_REMEDY,
            symptoms=both("load-error"),
        )
        return
    if depth is None:
        return
    stated = draft.setting("num_target_layers")
    if whole(stated.value) is not None and stated.value != depth:
        yield Fault(
            severity="error",
            confidence="high",
            title=f"The drafter was made for a target of {stated.value} layers, this one has {depth}: another size of target",
            evidence=(str(stated), f"{target.path.name}/config.json: num_hidden_layers is {depth}"),
            remedy=_REMEDY,
            symptoms=both("all-positions-lower"),
        )
        return
    for setting in draft.layer_ids:
        ids = read_ids(setting)
        other = _usual_depth(ids) if ids is not None else None
        if ids is not None and other is not None and other != depth and max(ids) <= depth:
            yield Fault(
                severity="warning",
                confidence="medium",
                title=f"The layer ids are the usual ones of a target of {other} layers, this one has {depth}: of another size?",
                evidence=(str(setting), f"{target.path.name}/config.json: num_hidden_layers is {depth}"),
                remedy=f"{_REMEDY} If it was trained on these layers of this target on purpose, nothing is wrong.",
                symptoms=both("all-positions-lower"),
            )
            return


def _width_of_dflash(draft: Drafter) -> int | None:
    """fc joins as many states as target layers are named; their width is nowhere else."""
    table, fc = draft.folder.config.get("dflash_config"), draft.by_role.get("fc.weight")
    ids = table.get("target_layer_ids") if isinstance(table, dict) else None
    if not isinstance(ids, list) or not ids or fc is None or len(fc.shape) != 2 or fc.shape[1] % len(ids):
        return None
    return fc.shape[1] // len(ids)


def _usual_depth(ids: tuple[int, ...]) -> int | None:
    """The n whose usual layers 2, n // 2, n - 3 these are, as inputs or (one lower) as outputs."""
    inputs = tuple(one + 1 for one in ids) if ids[0] == 1 else ids
    if len(inputs) != 3 or inputs[0] != 2:
        return None
    depth = inputs[2] + 3
    return depth if inputs[1] == depth // 2 else None
