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

from breakeven.checkpoints.headers import TensorInfo
from breakeven.checkpoints.rows import read_rows, read_whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import NORM_ROLES
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.weights import body_is_fresh, sampled

# No trained norm of a head averages so little; around zero, half of its weights would turn signs.
NEAR_ZERO = 0.25


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3":
        return
    around_zero, all_zero = [], 0
    for role in NORM_ROLES:
        info = draft.by_role.get(f"{role}.weight")
        values = read_whole(info) if info is not None else None
        if info is None or values is None or not values.size:
            continue
        numbers = values.astype(np.float64)
        below = 100 * float((numbers < 0).mean())
        all_zero += not numbers.any()
        if np.isfinite(numbers).all() and abs(numbers.mean()) < NEAR_ZERO and (below > 10 or not numbers.any()):
            around_zero.append(f"{info.file.name}: {role} averages {numbers.mean():.3f}, {below:.0f} % below 0")
    if len(around_zero) < 2:
        return  # one alone may have been trained so
    # a head whose matrices are draws or zeros as well is a dummy, of which norms say nothing
    is_dummy = body_is_fresh(draft) if not all_zero else _is_zero(draft.by_role.get("fc.weight"))
    yield Fault(
        severity="info" if is_dummy else "error",
        confidence="high" if all_zero else "medium",
        title=f"{len(around_zero)} norms lie around zero: stored as deviations from one, applied as they are",
        evidence=tuple(around_zero),
        remedy="Add one to every norm weight; that is what the target's family computes.",
        symptoms=both("floor"),
        repairable=not is_dummy,
    )


def _is_zero(info: TensorInfo | None) -> bool:
    rows = read_rows(info, sampled(info.shape[0])) if info is not None and len(info.shape) == 2 and info.shape[0] else None
    return rows is not None and not rows.any()
