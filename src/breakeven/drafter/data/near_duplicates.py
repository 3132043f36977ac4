"""Which texts are nearly the same: groups that a split must not cut.

A small model asked for user turns writes the same question many times with a word changed. Two texts are near-duplicates when the
Jaccard similarity of their character n-grams (of normalised words) is at least MIN_SIMILARITY; groups are the connected parts.
Candidates come from MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", chapter 3),
and the similarity is estimated from the signatures: with 128 hashes its standard error at 0.5 is 0.044. Characters rather than
words, because not every script puts spaces between words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from breakeven.drafter.data.prompt_records import normalised

__all__ = ["MIN_SIMILARITY", "Signatures", "group_near_duplicates", "near_any", "signatures"]

MIN_SIMILARITY = 0.5
NGRAM_BYTES = 6
NUM_HASHES = 128
# 3 hashes a band: a pair at the threshold meets in one of the 42 bands with probability 0.996, at 0.3 with 0.69.
BAND_HASHES = 3
# In a large bucket every text is compared to this many others: enough to join it, and time stays linear.
BUCKET_COMPARED = 64

Signatures = NDArray[np.uint32]


def signatures(texts: Sequence[str]) -> Signatures:
    """MinHash signatures [texts, NUM_HASHES]. The multipliers are fixed: the same texts give the same groups everywhere."""
    numbers = np.random.Generator(np.random.PCG64(20261130))
    factors = (numbers.integers(1, 1 << 31, NUM_HASHES, dtype=np.uint64) << np.uint64(1)) | np.uint64(1)
    offsets = numbers.integers(0, 1 << 63, NUM_HASHES, dtype=np.uint64)
    powers = np.array([pow(1_000_003, power, 1 << 64) for power in range(NGRAM_BYTES)], dtype=np.uint64)
    found = np.empty((len(texts), NUM_HASHES), dtype=np.uint32)
    for index, text in enumerate(texts):
        data = np.frombuffer(f" {normalised(text) or text} ".encode().ljust(NGRAM_BYTES), dtype=np.uint8).astype(np.uint64)
        windows = np.lib.stride_tricks.sliding_window_view(data, NGRAM_BYTES)
        shingles = np.unique(windows @ powers)
        # multiply-shift: the upper half of a wrapped product is a good hash of it
        mixed = (shingles ^ (shingles >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        found[index] = ((mixed[:, None] * factors + offsets) >> np.uint64(32)).astype(np.uint32).min(axis=0)
    return found


def group_near_duplicates(texts: Signatures, keys: Sequence[str] = ()) -> list[int]:
    """The group of each text: the index of the group's first text. Texts of one key, where keys are given, are of one group."""
    parents = list(range(len(texts)))
    first_of: dict[str, int] = {}
    for index, key in enumerate(keys):
        _join(parents, index, first_of.setdefault(key, index))
    for band in _bands(texts):
        _, inverse, counts = np.unique(band, return_inverse=True, return_counts=True)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(counts)
        for last in np.nonzero(counts > 1)[0]:
            bucket = order[ends[last] - counts[last] : ends[last]]
            hubs = bucket[:BUCKET_COMPARED]
            alike = (texts[bucket][:, None, :] == texts[hubs][None, :, :]).mean(axis=2, dtype=np.float32) >= MIN_SIMILARITY
            for row, column in zip(*np.nonzero(alike), strict=True):
                _join(parents, int(bucket[row]), int(hubs[column]))
    return [_root(parents, index) for index in range(len(texts))]


def near_any(texts: Signatures, others: Signatures) -> NDArray[np.bool_]:
    """Whether each text is a near-duplicate of any of `others`."""
    near = np.zeros(len(texts), dtype=np.bool_)
    for keys, other_keys in zip(_bands(texts), _bands(others), strict=True):
        order = np.argsort(other_keys, kind="stable")
        begins, ends = (np.searchsorted(other_keys, keys, side, sorter=order) for side in ("left", "right"))
        for index in np.nonzero((ends > begins) & ~near)[0]:
            met = others[order[begins[index] : ends[index]]]
            near[index] = (met == texts[index]).mean(axis=1, dtype=np.float32).max() >= MIN_SIMILARITY
    return near


def _bands(texts: Signatures) -> Iterator[NDArray[np.uint64]]:
    """One key a text for each band. Two bands with one key differ with probability 2^-64: the signatures are compared anyway."""
    multipliers = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
    for band in range(0, NUM_HASHES - BAND_HASHES + 1, BAND_HASHES):
        yield texts[:, band : band + BAND_HASHES].astype(np.uint64) @ multipliers


def _root(parents: list[int], index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def _join(parents: list[int], a: int, b: int) -> None:
    a, b = _root(parents, a), _root(parents, b)
    # the smaller index is the root, so that a group is named by its first text
    parents[max(a, b)] = min(a, b)
