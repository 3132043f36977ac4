"""The table `req_to_token` [requests, width]: which slot of the cache holds which position of a request.

R requests of the batch, `rows` [R] their rows in the table. Slots of a batch are one flat tensor, request after request.
"""

from __future__ import annotations

import torch

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
]


def assign_req_to_token_pool_cpu(
    rows: torch.Tensor, req_to_token: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, slots: torch.Tensor, width: int
) -> None:
    """Write `slots` into the positions starts[r] to ends[r] of every request."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        req_to_token[row, start:end] = slots[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    rows: torch.Tensor, req_to_token: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, slots: torch.Tensor, width: int
) -> None:
    """Read the positions starts[r] to ends[r] of every request into `slots`, one after the other."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        slots[taken : taken + end - start] = req_to_token[row, start:end].to(slots.dtype)
        taken += end - start


def assign_draft_cache_locs_contiguous_cpu(
    rows: torch.Tensor,
    req_to_token: torch.Tensor,
    lengths: torch.Tensor,
    slots: torch.Tensor,
    width: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the topk * num_steps positions that follow the first lengths[r] of every request into `slots`."""
    assign_extend_cache_locs_cpu(rows, req_to_token, lengths, lengths + topk * num_steps, slots, width)


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor, rows: torch.Tensor, lengths: torch.Tensor, topk: int, num_steps: int, width: int
) -> torch.Tensor:
    """A table [R * topk, width] for drafting: every branch of a request has the request's prefix and then its own drafts.

    Branch b keeps its drafts in the positions length + b * num_steps and on of the request's row, as they were assigned above.
    """
    table = req_to_token.new_zeros((rows.numel() * topk, width))
    for request, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        for branch in range(topk):
            entry, own = table[request * topk + branch], length + branch * num_steps
            entry[:length] = req_to_token[row, :length]
            entry[length : length + num_steps] = req_to_token[row, own : own + num_steps]
    return table
