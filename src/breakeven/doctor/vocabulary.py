"""The map from the draft vocabulary to the target's, read once and understood for all rules that judge it.

d2t[i] is an offset in every public trainer: draft token i is target token i + d2t[i]. t2d marks the target tokens that are in the
draft vocabulary; engines ignore it, trainers do not, so it is the witness. Shapes: W draft vocabulary, V target vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from breakeven.checkpoints.rows import read_whole
from breakeven.doctor.drafter import Drafter

__all__ = ["VocabularyMap", "marked_tokens", "target_rows_of_head", "vocabulary_map"]


@dataclass(frozen=True, kw_only=True)
class VocabularyMap:
    """raw: d2t as stored, [W] int64. marked: target ids where t2d is set, ascending; None where there is no t2d."""

    raw: NDArray[np.int64]
    vocab: int | None
    marked: NDArray[np.int64] | None
    file: str
    dtype: str

    @cached_property
    def as_offsets(self) -> NDArray[np.int64]:
        """[W] target ids, where d2t holds offsets, as it should."""
        return self.raw + np.arange(len(self.raw))

    def is_valid(self, ids: NDArray[np.int64]) -> bool:
        """Inside the vocabulary, each once, in ascending order."""
        inside = len(ids) > 0 and int(ids.min()) >= 0 and (self.vocab is None or int(ids.max()) < self.vocab)
        return inside and bool((np.diff(ids) > 0).all())

    def matches_marks(self, ids: NDArray[np.int64]) -> bool:
        return self.marked is not None and np.array_equal(np.sort(ids), self.marked)

    @cached_property
    def is_absolute(self) -> bool | None:
        """Whether d2t holds ids instead of offsets; None where both readings are possible."""
        offsets_fit, ids_fit = self.is_valid(self.as_offsets), self.is_valid(self.raw)
        if self.marked is not None and self.matches_marks(self.as_offsets) != self.matches_marks(self.raw):
            return self.matches_marks(self.raw)
        if offsets_fit and ids_fit:
            # draft vocabularies are the most frequent tokens, which stand side by side in places: equal offsets, never equal ids
            return None
        return ids_fit and not offsets_fit


def vocabulary_map(draft: Drafter) -> VocabularyMap | None:
    """None where there is no d2t, or it cannot be read as whole numbers."""
    info = draft.by_role.get("d2t")
    raw = read_whole(info) if info is not None and len(info.shape) == 1 else None
    if info is None or raw is None or raw.dtype.kind not in "iu" or not len(raw):
        return None
    return VocabularyMap(
        raw=raw.astype(np.int64), vocab=draft.vocab, marked=marked_tokens(draft), file=info.file.name, dtype=info.dtype
    )


def marked_tokens(draft: Drafter) -> NDArray[np.int64] | None:
    """Target ids that t2d marks, ascending; None where there is no t2d that can be read as marks."""
    info = draft.by_role.get("t2d")
    marks = read_whole(info) if info is not None and len(info.shape) == 1 else None
    if marks is None or marks.dtype.kind not in "biu":
        return None
    # some exporters store the draft id of every target token instead of a mark
    return np.flatnonzero(marks).astype(np.int64) if marks.dtype.kind == "b" or int(marks.max(initial=0)) <= 1 else None


def target_rows_of_head(draft: Drafter, rows: list[int]) -> list[int] | None:
    """Target ids that rows of the drafter's head stand for; None where the map is missing, too short or leaves the vocabulary."""
    found = vocabulary_map(draft)
    if found is None:
        return rows if draft.draft_vocab == draft.vocab else None
    if not rows or max(rows) >= len(found.raw):
        return None
    ids = found.as_offsets[rows]
    return [int(one) for one in ids] if int(ids.min()) >= 0 else None
