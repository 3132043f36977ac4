"""What a few rows of a matrix show: freshly initialised or trained, related to the target's or not.

A head's matrices start as independent draws of one spread, so that all rows are equally long. Training changes that: frequent
tokens and features move further. A handful of rows is enough to see it; nothing larger is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from breakeven.checkpoints.folder import ModelFolder
from breakeven.checkpoints.headers import TensorInfo
from breakeven.checkpoints.rows import is_readable, read_rows, read_whole
from breakeven.doctor.drafter import Drafter, language_config
from breakeven.doctor.expected import NORM_ROLES

__all__ = [
    "RELATED",
    "UNRELATED",
    "Likeness",
    "body_is_fresh",
    "is_untrained",
    "likeness",
    "looks_fresh",
    "sampled",
    "target_embedding",
    "target_head",
]

NUM_ROWS = 48
MIN_WIDTH = 16
# Unrelated rows of width w have cosines around 0 with a spread of 1 / sqrt(w); heads made from the target's stay far above.
UNRELATED = 0.1
RELATED = 0.3
Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Rows of the drafter against rows of the target, pair by pair. cosine: mean. length_ratio: spread of the ratios of lengths."""

    cosine: float
    equal_share: float
    same_lengths: bool
    num_rows: int


def sampled(num_rows: int, count: int = NUM_ROWS) -> list[int]:
    """Row numbers spread evenly over a matrix."""
    return sorted({int(one) for one in np.linspace(0, num_rows - 1, min(count, num_rows))})


def looks_fresh(info: TensorInfo | None) -> bool | None:
    """Whether a matrix looks as it was initialised; None where that cannot be told."""
    if info is None or len(info.shape) != 2 or info.shape[1] < MIN_WIDTH or info.shape[0] < MIN_WIDTH:
        return None
    rows = read_rows(info, sampled(info.shape[0]))
    if rows is None or not np.isfinite(rows).all():
        return None
    spread = float(rows.std())
    if spread == 0:
        return None
    lengths = np.linalg.norm(rows, axis=1)
    variation = float(lengths.std() / lengths.mean())
    kurtosis = float((((rows - rows.mean()) / spread) ** 4).mean())
    offset = abs(float(rows.mean())) / spread * math.sqrt(rows.size)
    # normal draws have kurtosis 3, uniform ones 1.8; the length of w independent draws varies by 1 / sqrt(2 w), or less
    return variation < 1.7 / math.sqrt(2 * rows.shape[1]) and (2.6 < kurtosis < 3.4 or 1.65 < kurtosis < 1.95) and offset < 5


def is_untrained(draft: Drafter) -> bool:
    """A head as initialised throughout: every norm is one, and every matrix that can be read looks fresh."""
    norms = [draft.by_role.get(f"{role}.weight") for role in NORM_ROLES]
    values = [read_whole(info) for info in norms if info is not None]
    ones = [one is not None and bool((one.astype(np.float64) == 1).all()) for one in values]
    return bool(ones) and all(ones) and body_is_fresh(draft)


def body_is_fresh(draft: Drafter) -> bool:
    """Whether every matrix but those of the vocabulary looks as initialised: then looks tell nothing of those either."""
    own = ("lm_head.weight", "embed_tokens.weight")
    fresh = [looks_fresh(info) for role, info in draft.by_role.items() if len(info.shape) == 2 and role not in own]
    return any(fresh) and all(one is not False for one in fresh)


def likeness(own: TensorInfo, own_rows: list[int], other: TensorInfo, other_rows: list[int]) -> Likeness | None:
    """Compare rows of two matrices pair by pair; None where either cannot be read or the widths differ."""
    if not own_rows or len(own.shape) != 2 or len(other.shape) != 2 or own.shape[1] != other.shape[1] or own.shape[1] < MIN_WIDTH:
        return None
    mine, theirs = read_rows(own, own_rows), read_rows(other, other_rows)
    if mine is None or theirs is None or not (np.isfinite(mine).all() and np.isfinite(theirs).all()):
        return None
    lengths, other_lengths = np.linalg.norm(mine, axis=1), np.linalg.norm(theirs, axis=1)
    there = (lengths > 0) & (other_lengths > 0)
    if not there.any():
        return None
    cosines = (mine * theirs).sum(axis=1)[there] / (lengths * other_lengths)[there]
    # a difference of one rounding to bfloat16
    equal = np.isclose(mine, theirs, rtol=1 / 128, atol=1e-6).all(axis=1)
    ratios = lengths[there] / other_lengths[there]
    return Likeness(
        cosine=float(cosines.mean()),
        equal_share=float(equal.mean()),
        same_lengths=bool((np.abs(ratios - 1) < 0.02).mean() > 0.9 and float(other_lengths.std() / other_lengths.mean()) > 0.03),
        num_rows=int(there.sum()),
    )


def embeddings_compared(draft: Drafter, target: ModelFolder) -> tuple[TensorInfo, Likeness] | None:
    """The drafter's own embeddings, and how like the target's they are; None where there are none of the same shape."""
    own, theirs = draft.by_role.get("embed_tokens.weight"), target_embedding(target)
    if own is None or theirs is None or own.shape != theirs.shape:
        return None
    rows = sampled(own.shape[0])
    found = likeness(own, rows, theirs, rows)
    return (own, found) if found is not None else None


def target_embedding(target: ModelFolder) -> TensorInfo | None:
    """The target's input embeddings, whatever prefix a multimodal checkpoint gives them."""
    return _shortest(target, "embed_tokens.weight")


def target_head(target: ModelFolder) -> TensorInfo | None:
    """The target's output matrix; its embeddings where they are tied and it has none of its own."""
    own = _shortest(target, "lm_head.weight")
    tied = target.config.get("tie_word_embeddings", language_config(target).get("tie_word_embeddings"))
    return own if own is not None else target_embedding(target) if tied is not False else None


def _shortest(target: ModelFolder, ending: str) -> TensorInfo | None:
    names = [name for name in target.tensors if name == ending or name.endswith(f".{ending}")]
    found = target.tensors[min(names, key=len)] if names else None
    return found if found is not None and is_readable(found) else None
