"""The drafter's configuration gives its positions twice, and differently.

Detects: rope_theta against rope_parameters.rope_theta, rope_scaling against rope_parameters.

Why it hurts: vLLM reads rope_parameters, other code rope_theta and rope_scaling. One of them computes positions that the drafter
was not trained with; engines and releases then differ without a message.

Evidence: the keys.

Remedy: write the values it was trained with, the same in both places.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.rope import read_rope
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    rope = read_rope(draft.layer_config)
    if rope.contradictions:
        yield Fault(
            severity="error",
            confidence="high",
            title="The drafter's configuration states its rotary positions twice, and differently",
            evidence=rope.contradictions,
            remedy="Write the values that it was trained with into rope_parameters, and the same into rope_theta and rope_scaling.",
            symptoms=both("engines-differ"),
            repairable=evidence.target is not None,
        )
