"""Weights that are not numbers.

Detects: NaN or infinity in the norms, or in sampled rows of the matrices.

Why it hurts: every logit becomes NaN: depending on the engine all drafts are rejected or all accepted, and the text may degenerate.

Evidence: the tensor and how many of the sampled values are not finite.

Remedy: take a checkpoint from before training diverged.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from breakeven.checkpoints.rows import read_rows, read_whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.weights import sampled

MAX_TENSORS = 64


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    broken = []
    for role, info in list(draft.by_role.items())[:MAX_TENSORS]:
        values = (
            read_whole(info)
            if len(info.shape) == 1
            else read_rows(info, sampled(info.shape[0]))
            if len(info.shape) == 2 and info.shape[0]
            else None
        )
        if values is None or values.dtype.kind != "f" or not values.size:
            continue
        share = 1 - float(np.isfinite(values).mean())
        if share:
            broken.append(f"{info.file.name}: {role.replace('layer.', 'midlayer.')}, {100 * share:.1f} % of {values.size} values")
    if broken:
        yield Fault(
            severity="error",
            confidence="high",
            title=f"{len(broken)} tensors hold values that are not numbers",
            evidence=tuple(broken[:8]),
            remedy="Take a checkpoint from before training diverged.",
            symptoms=both("floor"),
        )
