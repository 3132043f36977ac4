"""Samples laid end to end, and the padded blocks that attention wants. Shapes as in `states.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.data.samples import Sample

__all__ = ["Block", "PackedTokens", "blocks_of", "groups_within", "pack_tokens", "sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTokens:
    """What of `PackedStates` is known before the target runs. `starts` stays on the host, where loops over samples are."""

    token_ids: Tensor  # [N] int64
    positions: Tensor  # [N] int64
    samples: Tensor  # [N] int32
    starts: Tensor  # [S + 1] int64, on the CPU
    loss_mask: Tensor  # [N] bool


def sent(array: NDArray[Any], device: torch.device) -> Tensor:
    """`array` on the device. On a GPU the host does not wait: a plain copy would, for everything queued before it."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def pack_tokens(samples: Sequence[Sample], device: torch.device) -> PackedTokens:
    lengths = np.array([len(sample.token_ids) for sample in samples], dtype=np.int64)
    starts = np.concatenate([[0], lengths.cumsum()])
    owners = np.repeat(np.arange(len(samples), dtype=np.int32), lengths)
    token_ids = np.fromiter((token for sample in samples for token in sample.token_ids), dtype=np.int64, count=int(starts[-1]))
    loss_mask = np.fromiter((marked for sample in samples for marked in sample.loss_mask), dtype=bool, count=int(starts[-1]))
    return PackedTokens(
        token_ids=sent(token_ids, device),
        positions=sent(np.arange(starts[-1]) - starts[owners], device),
        samples=sent(owners, device),
        starts=torch.from_numpy(starts),
        loss_mask=sent(loss_mask, device),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Samples of like length as one padded rectangle: packed row `rows[i]` stands at place `places[i]` of it, read row by row."""

    num_samples: int
    length: int
    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def blocks_of(starts: Sequence[int]) -> list[Block]:
    """Every packed row in exactly one block; lengths within a block differ by less than a factor of two, so under half is padding.

    Padding stands at the end, where causal attention never looks from a real row.
    """
    lengths = np.diff(np.asarray(starts, dtype=np.int64))
    classes = np.array([int(length - 1).bit_length() for length in lengths])
    blocks = []
    for kind in sorted(set(classes.tolist())):
        members = np.flatnonzero(classes == kind)
        longest = int(lengths[members].max())
        blocks.append(
            Block(
                num_samples=len(members),
                length=longest,
                rows=np.concatenate([np.arange(starts[member], starts[member + 1]) for member in members.tolist()]),
                places=np.concatenate([place * longest + np.arange(lengths[member]) for place, member in enumerate(members)]),
            )
        )
    return blocks


def groups_within(lengths: Sequence[int], max_tokens: int) -> Iterator[tuple[int, int]]:
    """Consecutive samples as (first, past the last) whose lengths sum to at most `max_tokens`; a longer sample stands alone."""
    first, total = 0, 0
    for index, length in enumerate(lengths):
        if index > first and total + length > max_tokens:
            yield first, index
            first, total = index, 0
        total += length
    if lengths:
        yield first, len(lengths)
