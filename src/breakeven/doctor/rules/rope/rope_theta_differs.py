"""The drafter's rotary base is not the target's.

Detects: rope_theta of the drafter against the target's: absent where the target's is not the default, or another number.

Why it hurts: a drafter is free to use a base of its own, if it was trained with it. But conversions lose the key, and the default
of 10 000 takes its place: near tokens still work, far ones are misplaced, and acceptance falls with the context.

Evidence: the two values. The original EAGLE and Model-Optimizer train at 10 000 and releases of TorchSpec at 1 000 000 whatever
the target has: in their folders it is no sign of anything.

Remedy: the value of the training configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from breakeven.doctor.drafter import Drafter, language_config
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.rope import DEFAULT_THETA, Rope, read_rope
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

TORCHSPEC_THETA = 1_000_000.0


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    if not draft.has_attention:
        return
    own, theirs = read_rope(draft.layer_config), read_rope(language_config(target))
    if theirs.theta is None or own.contradictions or math.isclose(own.effective_theta, theirs.theta):
        return
    absent = own.theta is None
    usual = not absent and _trained_so(draft, own)
    yield Fault(
        severity="info" if usual else "warning",
        confidence="medium" if absent else "low",
        title=(
            f"rope_theta is missing in the drafter, so it computes with {DEFAULT_THETA:g}; the target has {theirs.theta:g}"
            if absent
            else f"The drafter's rope_theta is {own.effective_theta:g}, the target's {theirs.theta:g}"
        ),
        evidence=(
            f"config.json: rope_theta is {'absent' if absent else f'{own.effective_theta:g}'}",
            f"{target.path.name}/config.json: rope_theta is {theirs.theta:g}",
            *(("its trainer uses a base of its own",) if usual else ()),
        ),
        remedy="Set it to the value of the training configuration"
        + (" (usually the target's)." if not usual else "; nothing to do if this is it."),
        symptoms=both("falls-with-context"),
        repairable=absent,
    )


def _trained_so(draft: Drafter, rope: Rope) -> bool:
    """Trainers that use a base of their own, by the marks of their folders."""
    top, nested = draft.layer_ids
    by_eagle = not top.key and not nested.key and "embed_tokens.weight" in draft.by_role
    by_model_optimizer = rope.kind == "yarn" and bool(nested.key)
    if rope.effective_theta == DEFAULT_THETA:
        return by_eagle or by_model_optimizer
    by_torchspec = bool(nested.key) and not top.key
    return rope.effective_theta == TORCHSPEC_THETA and by_torchspec
