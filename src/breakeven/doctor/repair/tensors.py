"""Repairs of the weights file, one function a fault. Rows come from the target or the parent; nothing is invented."""

from __future__ import annotations

import numpy as np

from breakeven.checkpoints.rows import read_whole
from breakeven.checkpoints.writing import copy_of, of_array, rows_of
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import NORM_ROLES, misnamed
from breakeven.doctor.repair.copying import Copying
from breakeven.doctor.vocabulary import VocabularyMap, marked_tokens, vocabulary_map
from breakeven.doctor.weights import target_head

__all__ = [
    "centre_norms_on_one",
    "drop_embeddings",
    "drop_map",
    "head_from_target",
    "map_from_marks",
    "map_to_offsets",
    "parents_map",
    "rename_layers",
    "rename_tensors",
    "strip_prefix",
]


def rename_tensors(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    for name, wanted in misnamed(evidence.draft):
        copying.rename(name, wanted)


def rename_layers(copying: Copying, evidence: Evidence) -> None:
    """layers.0. to midlayer., which every release of both engines reads; not for drafters of several layers."""
    assert evidence.draft is not None
    if evidence.draft.num_layers_held > 1:
        return
    for name in list(copying.tensors):
        if name.removeprefix("model.").startswith("layers.0."):
            copying.rename(name, "midlayer." + name.removeprefix("model.").removeprefix("layers.0."))


def strip_prefix(copying: Copying, _evidence: Evidence) -> None:
    for name in list(copying.tensors):
        if name.startswith("model."):
            copying.rename(name, name.removeprefix("model."))


def map_to_offsets(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    found = vocabulary_map(evidence.draft)
    if found is not None and found.is_absolute:
        copying.put(_name(copying, "d2t"), of_array(found.raw - np.arange(len(found.raw))), "target ids turned into offsets")


def map_from_marks(copying: Copying, evidence: Evidence) -> None:
    """The i-th token marked in t2d is draft token i."""
    draft = evidence.draft
    assert draft is not None
    marked = marked_tokens(draft)
    if marked is not None and len(marked) == draft.draft_vocab:
        copying.put(
            _name(copying, "d2t"), of_array(marked - np.arange(len(marked))), f"offsets of the {len(marked)} tokens marked in t2d"
        )


def parents_map(copying: Copying, evidence: Evidence) -> None:
    parent = evidence.parent
    if parent is None:
        return
    for name in ("d2t", "t2d"):
        if name in parent.by_role:
            copying.put(_name(copying, name), copy_of(parent.by_role[name]), f"as in {parent.folder.path.name}")


def drop_map(copying: Copying, evidence: Evidence) -> None:
    """Only where it is the identity: any other map of a whole vocabulary means something."""
    assert evidence.draft is not None
    found = vocabulary_map(evidence.draft)
    if found is not None and not found.raw.any():
        copying.remove(_name(copying, "d2t"), "it maps the vocabulary onto itself")
        copying.remove(_name(copying, "t2d"), "it marks every token")


def head_from_target(copying: Copying, evidence: Evidence) -> None:
    """The target's rows of the draft vocabulary."""
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    theirs = target_head(target) if target is not None else None
    ids = _ids(evidence, vocabulary_map(draft))
    if theirs is None or ids is None or theirs.shape[1] != draft.hidden or max(ids, default=-1) >= theirs.shape[0]:
        return
    assert target is not None
    why = f"{len(ids)} rows of {target.path.name}'s head, which is right only if the drafter was trained with that head"
    copying.put(_name(copying, "lm_head.weight"), rows_of(theirs, ids), why)


def drop_embeddings(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    copying.remove(_name(copying, "embed_tokens.weight"), "engines take the target's")


def centre_norms_on_one(copying: Copying, evidence: Evidence) -> None:
    draft = evidence.draft
    assert draft is not None
    for name, info in draft.tensors.items():
        if draft.role(name).removesuffix(".weight") not in NORM_ROLES:
            continue
        values = read_whole(info)
        if values is not None and values.dtype.kind == "f":
            copying.put(
                name,
                of_array(values.astype(np.float64) + 1, as_dtype=info.dtype),
                "one added to every weight, which is right if the trainer stored deviations from one",
            )


def _ids(evidence: Evidence, found: VocabularyMap | None) -> list[int] | None:
    draft = evidence.draft
    assert draft is not None
    if found is None:
        marked = marked_tokens(draft)
        if marked is not None and len(marked) == draft.draft_vocab:
            return [int(one) for one in marked]
        return list(range(draft.vocab)) if draft.vocab is not None and draft.draft_vocab == draft.vocab else None
    ids = found.raw if found.is_absolute else found.as_offsets
    return [int(one) for one in ids] if found.is_valid(ids) and len(ids) == draft.draft_vocab else None


def _name(copying: Copying, role: str) -> str:
    """The name under which the copy holds a tensor, or should."""
    return next((name for name in copying.tensors if name.removeprefix("model.") == role), role)
