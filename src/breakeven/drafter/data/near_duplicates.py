"""Which texts are nearly the same: groups that a split must not cut.

A small model asked for user turns writes the same question many times with a word changed. Two texts are near-duplicates when the
Jaccard similarity of their character n-grams (of normalised words) is at least MIN_SIMILARITY; groups are the connected parts.
Candidates come from MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", chapter 3),
and the similarity is estimated from the signatures: with 128 hashes its standard error at 0.5 is 0.044. Characters rather than
words, because not every script puts spaces between words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from breakeven.drafter.data.prompt_records import normalised

__all__ = ["MIN_SIMILARITY", "group_near_duplicates", "near_any"]

MIN_SIMILARITY = 0.5
NGRAM_BYTES = 6
NUM_HASHES = 128
# 3 hashes a band: a pair at the threshold meets in one of the 42 bands with probability 0.996, at 0.3 with 0.69.
BAND_HASHES = 3
# In a large bucket every text is compared to this many others: enough to join it, and time stays linear.
BUCKET_COMPARED = 64

Signatures = NDArray[np.uint32]


def group_near_duplicates(texts: Sequence[str]) -> list[int]:
    """The group of each text: the index of the group's first text."""
    signatures = _signatures(texts)
    parents = list(range(len(texts)))
    for bucket in _buckets(signatures):
        hubs = bucket[:BUCKET_COMPARED]
        alike = (signatures[bucket][:, None, :] == signatures[hubs][None, :, :]).mean(axis=2, dtype=np.float32) >= MIN_SIMILARITY
        for row, column in zip(*np.nonzero(alike), strict=True):
            _join(parents, int(bucket[row]), int(hubs[column]))
    return [_root(parents, index) for index in range(len(texts))]


def near_any(texts: Sequence[str], others: Sequence[str]) -> list[bool]:
    """Whether each text is a near-duplicate of any of `others`."""
    near = [False] * len(texts)
    if not texts or not others:
        return near
    signatures, other_signatures = _signatures(texts), _signatures(others)
    for band in range(0, NUM_HASHES - BAND_HASHES + 1, BAND_HASHES):
        buckets: dict[bytes, list[int]] = {}
        for index, row in enumerate(other_signatures[:, band : band + BAND_HASHES]):
            buckets.setdefault(row.tobytes(), []).append(index)
        for index, row in enumerate(signatures[:, band : band + BAND_HASHES]):
            if not near[index] and (met := buckets.get(row.tobytes())):
                shares = (other_signatures[met] == signatures[index]).mean(axis=1, dtype=np.float32)
                near[index] = bool(shares.max() >= MIN_SIMILARITY)
    return near


def _signatures(texts: Sequence[str]) -> Signatures:
    """MinHash signatures [texts, NUM_HASHES]. The multipliers are fixed: the same texts give the same groups everywhere."""
    numbers = np.random.Generator(np.random.PCG64(20261130))
    factors = (numbers.integers(1, 1 << 31, NUM_HASHES, dtype=np.uint64) << np.uint64(1)) | np.uint64(1)
    offsets = numbers.integers(0, 1 << 63, NUM_HASHES, dtype=np.uint64)
    powers = np.array([pow(1_000_003, power, 1 << 64) for power in range(NGRAM_BYTES)], dtype=np.uint64)
    signatures = np.empty((len(texts), NUM_HASHES), dtype=np.uint32)
    for index, text in enumerate(texts):
        data = np.frombuffer(f" {normalised(text) or text} ".encode().ljust(NGRAM_BYTES), dtype=np.uint8).astype(np.uint64)
        windows = np.lib.stride_tricks.sliding_window_view(data, NGRAM_BYTES)
        shingles = np.unique(windows @ powers)
        # multiply-shift: the upper half of a wrapped product is a good hash of it
        mixed = (shingles ^ (shingles >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        signatures[index] = ((mixed[:, None] * factors + offsets) >> np.uint64(32)).astype(np.uint32).min(axis=0)
    return signatures


def _buckets(signatures: Signatures) -> list[NDArray[np.int64]]:
    """Texts that agree in a whole band, ascending; those that agree with nobody are left out."""
    buckets = []
    for band in range(0, NUM_HASHES - BAND_HASHES + 1, BAND_HASHES):
        _, inverse, counts = np.unique(signatures[:, band : band + BAND_HASHES], axis=0, return_inverse=True, return_counts=True)
        inverse = inverse.reshape(-1)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(counts)
        buckets += [order[end - count : end] for end, count in zip(ends, counts, strict=True) if count > 1]
    return buckets


def _root(parents: list[int], index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def _join(parents: list[int], a: int, b: int) -> None:
    a, b = _root(parents, a), _root(parents, b)
    # the smaller index is the root, so that a group is named by its first text
    parents[max(a, b)] = min(a, b)
