"""Which keys a row of packed samples may see, in the blocks that flex attention computes by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from breakeven.drafter.capture.packing import sent

__all__ = ["BLOCK", "block_mask"]

BLOCK = 128


def block_mask(samples: Tensor, starts: NDArray[np.int64]) -> BlockMask:
    """Causal within samples, straight from where samples start: no [N, N] mask is ever made.

    samples: [N] int32, which sample a row belongs to, N a multiple of 128; starts: [S + 1], on the host.
    """
    num_tokens = int(starts[-1])
    num_blocks = num_tokens // BLOCK
    assert num_tokens % BLOCK == 0, num_tokens
    own_start = np.repeat(starts[:-1], np.diff(starts))
    rows, columns = np.arange(num_blocks)[:, None], np.arange(num_blocks)[None]
    first_seen = own_start[rows * BLOCK] // BLOCK  # block of keys in which the first row's sample starts
    # blocks that lie wholly within the sample of every row of the block of queries, and before it, need no mask at all
    first_full = -(-own_start[rows * BLOCK + BLOCK - 1] // BLOCK)
    full = (columns >= first_full) & (columns < rows)
    partial = ((columns >= first_seen) & (columns < np.minimum(first_full, rows))) | (columns == rows)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001 - the signature is torch's
        return (samples[query] == samples[key]) & (key <= query)

    def listed(chosen: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """How many blocks of keys each block of queries has, and which: the chosen ones first."""
        counts, order = chosen.sum(axis=1), np.argsort(~chosen, axis=1, kind="stable")
        return sent(counts.astype(np.int32)[None, None], samples.device), sent(order.astype(np.int32)[None, None], samples.device)

    return BlockMask.from_kv_blocks(
        *listed(partial), *listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(num_tokens, num_tokens)
    )
