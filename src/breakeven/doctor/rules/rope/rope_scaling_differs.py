"""The drafter scales its positions otherwise than the target.

Detects: another type of RoPE scaling, or other factors, than the target's; or none where the target has one.

Why it hurts: inside the length that the drafter was trained at, its own setting is right whatever the target has. Beyond it,
positions are placed where training never put them, and acceptance falls with the context. Conversions lose rope_scaling.

Evidence: the two settings. Without scaling at all is common and healthy for short contexts; a YaRN drafter on vLLM lowers the
context that the server admits.

Remedy: the setting of the training configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.rope import Rope, read_rope
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    if not draft.has_attention:
        return
    own, theirs = read_rope(draft.layer_config), read_rope(language_config(target))
    if own.contradictions or (own.kind == theirs.kind and _same(own, theirs)):
        return
    # a drafter that scales what the target does not is extended at export, as Model-Optimizer does
    harmless = "default" in (own.kind, theirs.kind)
    yield Fault(
        severity="info" if harmless else "warning",
        confidence="low",
        title=f"The drafter's positions are scaled by {_told(own)}, the target's by {_told(theirs)}",
        evidence=(f"config.json: {_told(own)}", f"{target.path.name}/config.json: {_told(theirs)}"),
        remedy="Use the setting that it was trained with; if acceptance falls with the context, this is the first thing to try.",
        symptoms=both("falls-with-context"),
    )


def _same(own: Rope, theirs: Rope) -> bool:
    return all(own.scaling[key] == theirs.scaling[key] for key in own.scaling.keys() & theirs.scaling.keys())


def _told(rope: Rope) -> str:
    numbers = ", ".join(f"{key} {value:g}" for key, value in rope.scaling.items())
    return "nothing" if rope.kind == "default" else f"{rope.kind}{f' ({numbers})' if numbers else ''}"
