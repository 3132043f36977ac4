"""All training samples on the host, flat, so that a batch is a few slices.

Shapes: S samples, N tokens of a batch, K steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.training.rows import JudgedRows, judged_rows
from breakeven.errors import DataError

__all__ = ["Corpus"]


class Corpus:
    """`known` [V] bool are the tokens of the draft vocabulary."""

    def __init__(self, samples: Sequence[Sample], known: NDArray[np.bool_], num_steps: int, max_tokens: int) -> None:
        """Samples longer than `max_tokens` are cut at their end, which for a causal model is no loss but the cut tokens.

        Raises:
            DataError: no samples, or none in which anything can be learnt.
        """
        self.num_cut = sum(len(sample.token_ids) > max_tokens for sample in samples)
        self.samples = [_cut(sample, max_tokens) for sample in samples]
        if not self.samples:
            raise DataError("no training samples; expected at least one on the training side of the split")
        self.known = known
        self.num_steps = num_steps
        self.lengths = np.array([len(sample.token_ids) for sample in self.samples], dtype=np.int64)
        self.offsets = np.append(0, np.cumsum(self.lengths))
        self._token_ids = np.fromiter(
            (token for sample in self.samples for token in sample.token_ids), dtype=np.int64, count=int(self.offsets[-1])
        )
        self._loss_mask = np.fromiter(
            (flag for sample in self.samples for flag in sample.loss_mask), dtype=bool, count=int(self.offsets[-1])
        )
        highest = int(self._token_ids.max())
        if highest >= len(known):
            raise DataError(f"token id {highest}, but the target's vocabulary has {len(known)}: was it made with another model?")
        judged = judged_rows(self._token_ids, self._loss_mask, self.offsets, known, num_steps)
        if not judged.num_trained[0]:
            raise DataError(
                f"{len(self.samples)} samples of {self.num_tokens} tokens, and none of their answer tokens can be learnt: "
                "expected answers of three tokens or more, in the draft vocabulary"
            )
        owner = np.searchsorted(self.offsets, judged.rows, side="right") - 1
        # [S, K]: a batch's number of trained rows is the sum over its samples, whichever process holds them
        self.num_trained = np.stack(
            [np.bincount(owner[judged.depth > step], minlength=len(self.samples)) for step in range(num_steps)], axis=1
        )
        answer = self._token_ids[self._loss_mask]
        self.num_answer_tokens = len(answer)
        self.coverage = float(known[answer].mean())

    @property
    def num_tokens(self) -> int:
        return int(self.offsets[-1])

    def batch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64], JudgedRows]:
        """Token ids [N], loss mask [N], starts [S + 1] and judged rows of the samples end to end."""
        starts = np.append(0, np.cumsum(self.lengths[indices]))
        rows = self.rows(indices)
        token_ids, loss_mask = self._token_ids[rows], self._loss_mask[rows]
        return token_ids, loss_mask, starts, judged_rows(token_ids, loss_mask, starts, self.known, self.num_steps)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the samples' tokens lie in the whole corpus [N]."""
        lengths = self.lengths[indices]
        starts = np.append(0, np.cumsum(lengths))
        rows: NDArray[np.int64] = np.arange(int(starts[-1])) + np.repeat(self.offsets[indices] - starts[:-1], lengths)
        return rows


def _cut(sample: Sample, max_tokens: int) -> Sample:
    if len(sample.token_ids) <= max_tokens:
        return sample
    return replace(
        sample,
        token_ids=sample.token_ids[:max_tokens],
        loss_mask=sample.loss_mask[:max_tokens],
        num_prompt_tokens=min(sample.num_prompt_tokens, max_tokens),
    )
