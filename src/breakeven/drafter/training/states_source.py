"""Where a batch's states come from: the target, or what was kept of the target's states of an earlier epoch.

Running the target is most of the arithmetic of training a small head, and its states never change. Where those of all samples fit
beside everything else on the GPU, they are kept as they are first computed, and later epochs gather them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.capture.packing import sent
from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.training.batch import TrainingBatch, training_batch
from breakeven.drafter.training.corpus import Corpus
from breakeven.errors import BreakevenError

__all__ = ["CaptureStates", "StatesSource"]

# What is left free on the GPU when states are kept: activations, optimiser, evaluation.
SPARE_BYTES = 24 << 30


class CaptureStates(Protocol):
    def capture(self, samples: Sequence[Sample]) -> PackedStates: ...


class StatesSource:
    def __init__(self, capture: CaptureStates, corpus: Corpus, num_rows: int, *, keep: bool) -> None:
        self._capture = capture
        self._corpus = corpus
        self._num_rows = num_rows
        self._keep = keep
        self._kept: Tensor | None = None
        self._is_kept = np.zeros(len(corpus.samples), dtype=bool)

    @property
    def is_keeping(self) -> bool:
        return self._kept is not None

    def batch(self, indices: NDArray[np.int64]) -> TrainingBatch:
        """The samples' batch, padded to the fixed number of rows."""
        corpus = self._corpus
        token_ids, loss_mask, starts, judged = corpus.batch(indices)
        if self._kept is not None and self._is_kept[indices].all():
            packed = self._from_kept(indices, token_ids, loss_mask, starts)
        else:
            packed = self._capture.capture([corpus.samples[index] for index in indices])
            if len(packed.token_ids) != len(token_ids):
                raise BreakevenError(
                    f"the target gave states for {len(packed.token_ids)} tokens where the samples hold {len(token_ids)}: "
                    "they were truncated, padded or served from a prefix cache, and would train the wrong tokens"
                )
            self._put(indices, packed)
        return training_batch(packed, self._num_rows, corpus.known, corpus.num_steps, judged)

    def _put(self, indices: NDArray[np.int64], packed: PackedStates) -> None:
        if not self._keep:
            return
        width = packed.auxiliary.shape[1] + packed.last.shape[1]
        device = packed.auxiliary.device
        if self._kept is None:
            needed = self._corpus.num_tokens * width * packed.auxiliary.dtype.itemsize
            if device.type == "cuda" and needed > torch.cuda.mem_get_info(device)[0] - SPARE_BYTES:
                self._keep = False
                return
            self._kept = torch.empty(self._corpus.num_tokens, width, dtype=packed.auxiliary.dtype, device=device)
        rows = sent(self._corpus.rows(indices), device)
        self._kept[rows] = torch.cat([packed.auxiliary, packed.last.to(packed.auxiliary.dtype)], dim=1)
        self._is_kept[indices] = True

    def _from_kept(
        self, indices: NDArray[np.int64], token_ids: NDArray[np.int64], loss_mask: NDArray[np.bool_], starts: NDArray[np.int64]
    ) -> PackedStates:
        assert self._kept is not None
        device = self._kept.device
        lengths = np.diff(starts)

        states = self._kept[sent(self._corpus.rows(indices), device)]
        hidden = states.shape[1] // 4
        auxiliary, last = states.split([3 * hidden, hidden], dim=1)
        return PackedStates(
            token_ids=sent(token_ids, device),
            positions=sent(np.arange(len(token_ids)) - np.repeat(starts[:-1], lengths), device),
            samples=sent(np.repeat(np.arange(len(indices), dtype=np.int32), lengths), device),
            starts=torch.from_numpy(starts),
            loss_mask=sent(loss_mask, device),
            auxiliary=auxiliary,
            last=last,
        )
