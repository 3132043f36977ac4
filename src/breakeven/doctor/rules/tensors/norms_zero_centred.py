"""The norms are stored as deviations from one.

Detects: norm weights that lie around zero.

Why it hurts: some model families compute (1 + w) x in their norms and store w. A Llama-style drafter multiplies by w itself, so
every activation shrinks to almost nothing and drafts are noise.

Evidence: the mean of each norm's weights; those of trained heads lie around one or above.

Remedy: add one to every norm weight (`breakeven doctor --fix OUT_DIR`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from breakeven.checkpoints.rows import read_whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import NORM_ROLES
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

# No trained norm of a head averages so little; around zero, half of its weights would turn signs.
NEAR_ZERO = 0.25


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3":
        return
    around_zero = []
    for role in NORM_ROLES:
        info = draft.by_role.get(f"{role}.weight")
        values = read_whole(info) if info is not None else None
        if info is None or values is None or not values.size:
            continue
        numbers = values.astype(np.float64)
        if np.isfinite(numbers).all() and abs(numbers.mean()) < NEAR_ZERO and (numbers < 0).mean() > 0.1:
            around_zero.append(
                f"{info.file.name}: {role} averages {numbers.mean():.3f}, {100 * (numbers < 0).mean():.0f} % below 0"
            )
    if len(around_zero) < 2:
        return  # one alone may have been trained so
    yield Fault(
        severity="error",
        confidence="medium",
        title=f"{len(around_zero)} norms lie around zero: stored as deviations from one, applied as they are",
        evidence=tuple(around_zero),
        remedy="Add one to every norm weight; that is what the target's family computes.",
        symptoms=both("floor"),
        repairable=True,
    )
