"""Which samples stand in which batch, for the whole of training, from the seed alone.

Every process works the same order out for itself, and a run that goes on finds its place by counting: nothing about the order is
ever stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["Order"]


class Order:
    """Batches of `num_rows` tokens at most, over samples shuffled anew for each epoch; every sample stands in each epoch once."""

    def __init__(self, lengths: NDArray[np.int64], num_rows: int, num_epochs: int, seed: int) -> None:
        assert lengths.max() <= num_rows, "samples are cut to the batch before they are ordered"
        self._lengths = lengths
        self._num_rows = num_rows
        self._seed = seed
        self._ends: list[int] = []  # batches up to the end of each epoch
        for epoch in range(num_epochs):
            self._ends.append((self._ends[-1] if self._ends else 0) + len(self._epoch(epoch)))

    @property
    def num_batches(self) -> int:
        return self._ends[-1]

    def from_batch(self, first: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Epoch and samples of every batch from number `first` on."""
        start = 0
        for epoch, end in enumerate(self._ends):
            if first < end:
                for samples in self._epoch(epoch)[max(0, first - start) :]:
                    yield epoch, samples
            start = end

    def _epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        shuffled = np.random.default_rng([self._seed, epoch]).permutation(len(self._lengths))
        cuts = []
        filled = 0
        for place, length in enumerate(self._lengths[shuffled].tolist()):
            if filled + length > self._num_rows:
                cuts.append(place)
                filled = 0
            filled += length
        return np.split(shuffled, cuts)
