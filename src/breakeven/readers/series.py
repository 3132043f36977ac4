"""The printed intervals of one section as columns of numbers, in bounded memory however long the log is.

A row is one printed interval. Where a table is full, neighbouring rows are joined: counts are added, lengths and rates averaged by
rounds, the rest averaged. So a short log is kept line by line, and the longest ones at a coarser grain.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLUMNS", "Floats", "Mask", "Places", "Series"]

COLUMNS = (
    "time_s",  # NaN without a stamp
    "source",  # data-parallel rank or engine number
    "running",
    "queued",
    "throughput",  # output tokens/s
    "length",  # as printed
    "rate",  # as printed, a fraction
    "rounds",  # steps that carried drafts
    "steps",  # all decode steps, NaN where they cannot be told
    "drafted",
    "accepted",
    "graph",  # 1 with CUDA graphs, 0 without
    "kv_tokens",
    "kv_usage",  # a fraction
    "new_tokens",  # prefill
    "cached_tokens",  # prefill spared by the prefix cache
)
CAPACITY = 1 << 16
_COUNTS = [COLUMNS.index(name) for name in ("rounds", "steps", "drafted", "accepted", "new_tokens", "cached_tokens")]
_WEIGHTED = [COLUMNS.index(name) for name in ("length", "rate")]
_ROUNDS = COLUMNS.index("rounds")

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]


class Series:
    """Append-only. `grain` is how many printed intervals a row of the table holds at most."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.grain = 1
        self.num_appended = 0
        self._capacity = capacity
        self._kept: Floats = np.empty((0, len(COLUMNS)))
        self._recent = array("d")

    def append(self, row: Sequence[float]) -> None:
        """One row, in the order of COLUMNS; NaN for what was not printed."""
        self._recent.extend(row)
        self.num_appended += 1
        if len(self._recent) >= self._capacity * len(COLUMNS):
            self._kept = self._rows()
            self._recent = array("d")
            while len(self._kept) >= self._capacity:
                self._kept = _joined(self._kept, 2)
                self.grain *= 2

    def table(self) -> Mapping[str, Floats]:
        """The columns by name, in the order of the log."""
        rows = self._rows()
        return {name: rows[:, place] for place, name in enumerate(COLUMNS)}

    def _rows(self) -> Floats:
        recent = np.frombuffer(self._recent, dtype=np.float64).reshape(-1, len(COLUMNS)).copy()
        return np.concatenate([self._kept, _joined(recent, self.grain)])


def _joined(rows: Floats, num: int) -> Floats:
    """Each `num` neighbouring rows as one; what is left over at the end makes a last row."""
    if num == 1 or not len(rows):
        return rows
    whole = len(rows) // num * num
    groups = [rows[:whole].reshape(-1, num, rows.shape[1]), rows[whole:][None]]
    return np.concatenate([_join(group) for group in groups if group.shape[0] and group.shape[1]])


def _join(groups: Floats) -> Floats:
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean of nothing printed is NaN, as it should be
        joined: Floats = np.nanmean(groups, axis=1)
    for place in _COUNTS:
        counts = groups[:, :, place]
        joined[:, place] = np.where(np.isnan(counts).all(axis=1), np.nan, np.nansum(counts, axis=1))
    for place in _WEIGHTED:
        values = groups[:, :, place]
        weights = np.where(np.isnan(values), 0.0, np.nan_to_num(groups[:, :, _ROUNDS]))
        total = weights.sum(axis=1)
        means = (np.nan_to_num(values) * weights).sum(axis=1) / np.where(total > 0, total, 1.0)
        joined[:, place] = np.where(total > 0, means, joined[:, place])
    return joined
