"""Quantized matrices without their scales.

Detects: 8-bit or packed weights of the drafter that have no scale tensor, or none under a name that belongs to the format.

Why it hurts: numbers are taken for 1.0 of their unit: the layer's output is off by orders of magnitude and nothing is accepted.
No engine checks.

Evidence: the tensors.

Remedy: export again with the scales; some exporters name them otherwise (weight_scale, weight_scale_inv, scales).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.quantization import unscaled
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    found = unscaled(draft)
    if found:
        yield Fault(
            severity="error",
            confidence="high",
            title=f"{len(found)} quantized matrices of the drafter have no scales",
            evidence=tuple(
                f"{draft.by_role[role].file.name}: {role.replace('layer.', 'midlayer.')} is {draft.by_role[role].dtype}"
                for role in found[:6]
            ),
            remedy="Export the drafter again with its scales, or unquantized.",
            symptoms=both("floor"),
        )
