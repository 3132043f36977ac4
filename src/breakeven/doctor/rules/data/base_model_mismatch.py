"""The drafter was made for another model than the target.

Detects: the target that the drafter's own files name, or its folder's or hub id's name, against the target's name: another
family, generation, size or variant. Sizes and vocabularies can all agree: Kimi-K2 and K2.5 have the same.

Why it hurts: everything loads, and the drafter predicts another model. Acceptance is low at all positions, or nearly none.

Evidence: the names. A name is a weak witness, so a name alone never gives high confidence; what the drafter's files state does
(provenance, a verifier or base model in its configuration, base_model of its model card).

Remedy: the drafter made for this target, or a fine-tuning on its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from breakeven.checkpoints.headers import printable
from breakeven.doctor.beside import trained_for
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.model_names import ModelName, model_name
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    served_text = _named(target.path, target.config.get("_name_or_path"))
    served = model_name(served_text)
    if draft.method == "model":
        return  # a small model that drafts is another model of the family; what counts is the vocabulary
    stated = trained_for(draft.folder.path, draft.folder.config)
    if stated is not None and stated.name is not None and (named := model_name(stated.name)) is not None:
        text, source, confident = stated.name, stated.source, True
    else:
        text, source, confident = _named(draft.folder.path, draft.folder.config.get("_name_or_path")), "the drafter's name", False
        found = model_name(text)
        if found is None:
            return
        named = found
    if served is None:
        return
    differing = _differences(named, served, confident)
    if not differing:
        return
    strong = any(word in differing for word in ("family", "generation", "size"))
    yield Fault(
        severity="error" if strong and confident else "warning",
        confidence="high" if strong and confident else "medium" if strong else "low",
        title=f"Made for {printable(text)}, served with {printable(served_text)}: another {' and '.join(differing)}",
        evidence=(f"{source}: {printable(text)}", f"target: {printable(served_text)}"),
        remedy="Use the drafter made for this target, or fine-tune this one on the target's answers.",
        symptoms=both("all-positions-lower"),
    )


def _named(path: Path, recorded: object) -> str:
    """The part of a path that says which model it is: the hub id, else the folder's name, else what the configuration records."""
    for part in path.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    name = path.absolute().name
    if model_name(name) is None and isinstance(recorded, str) and recorded.isprintable() and model_name(recorded) is not None:
        return recorded
    return name


def _differences(named: ModelName, served: ModelName, confident: bool) -> list[str]:
    if named.family != served.family:
        return ["family"]
    differing = []
    if named.generation and served.generation and named.generation != served.generation:
        differing.append("generation")
    if named.sizes and served.sizes and not named.sizes & served.sizes:
        differing.append("size")
    # names leave variants out as often as not, so only two that are both written can differ
    if confident and named.variants and served.variants and not named.variants & served.variants:
        differing.append("variant")
    return differing
