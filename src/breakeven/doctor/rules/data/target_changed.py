"""The target is not the one that the drafter was trained for, by its fingerprint.

Detects: the fingerprint in the drafter's provenance.json against the target's configuration, tensor headers and first bytes of
weights.

Why it hurts: another conversion, precision or fine-tune of the target has other hidden states and other answers. Weight-only
quantization costs 0 to 3 %; four-bit activations or a fine-tune can cost a third.

Evidence: the two fingerprints, and the quantization of both.

Remedy: nothing if the difference is a weight-only quantization of the same weights; else train on the target that is served.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.checkpoints.folder import fingerprint
from breakeven.doctor.beside import side_json, trained_for
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    stated = trained_for(draft.folder.path, draft.folder.config)
    if stated is None or stated.fingerprint is None or stated.fingerprint == (now := fingerprint(target)):
        return
    recorded = side_json(draft.folder.path, "provenance.json").get("target")
    before = recorded.get("quantization") if isinstance(recorded, dict) else None
    table = target.config.get("quantization_config")
    method = table.get("quant_method") if isinstance(table, dict) else None
    yield Fault(
        severity="warning",
        confidence="high",
        title=f"The target is not the folder that the drafter was trained for ({str(stated.name)[:80]})",
        evidence=(
            f"{stated.source}.fingerprint is {stated.fingerprint}, {target.path.name} has {now}",
            f"quantization then: {before or 'none'}, now: {method or 'none'}",
        ),
        remedy="Nothing to do for a weight-only quantization of these weights (0 to 3 %); else train on what is served.",
        symptoms=both("all-positions-lower"),
    )
