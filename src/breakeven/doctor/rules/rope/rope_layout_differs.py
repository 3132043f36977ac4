"""The drafter rotates other parts of its heads than the target.

Detects: partial_rotary_factor given in the drafter and other than the target's; rope_interleave against the target's, for
drafters of the target's own kind of attention.

Why it hurts: a drafter with its own layer may rotate as it likes if it was trained so. One whose layer was copied from the target
must rotate as the target does, or queries and keys mismatch at every position.

Evidence: the keys of both.

Remedy: the value of the training configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.rope import read_rope
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    if not draft.has_attention:
        return
    own, theirs = read_rope(draft.layer_config), read_rope(language_config(target))
    differing = []
    if own.partial is not None and own.partial != (theirs.partial or 1.0):
        differing.append(("partial_rotary_factor", own.partial, theirs.partial))
    if own.interleaved is not None and theirs.interleaved is not None and own.interleaved != theirs.interleaved:
        differing.append(("rope_interleave", own.interleaved, theirs.interleaved))
    if not differing:
        return
    yield Fault(
        severity="warning",
        confidence="medium" if draft.is_latent else "low",
        title=f"Not as in the target: the drafter's {' and '.join(name for name, _, _ in differing)}",
        evidence=tuple(f"config.json: {name} is {mine}; {target.path.name}: {other}" for name, mine, other in differing),
        remedy="Set what it was trained with; a layer of the target's own kind is trained with the target's.",
        symptoms=both("all-positions-lower"),
    )
