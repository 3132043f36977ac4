"""Small copies between the steps of a round. R requests; results are written into the tensors that are given."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

__all__ = [
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
]


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lengths: torch.Tensor, bonus_tokens: torch.Tensor, stride: int
) -> None:
    """accept_tokens: `stride` places a request, of which the first accept_lengths[r] are filled, the bonus token last."""
    tokens = accept_tokens.view(-1)
    for request, length in enumerate(accept_lengths.tolist()):
        bonus_tokens[request] = tokens[request * stride + length - 1]


def fill_accept_out_cache_loc_cpu(accept_index: torch.Tensor, slots: torch.Tensor, accepted_slots: torch.Tensor) -> None:
    """The slots of the accepted nodes, moved together: accept_index holds flat nodes, and -1 where nothing was accepted."""
    kept = accept_index.view(-1)
    kept = kept[kept > -1].long()
    accepted_slots[: kept.numel()] = slots[kept].to(accepted_slots.dtype)


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    new_tokens: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Every request's tokens move one to the left and its new token goes to the end, or to the flat place select_index[r]."""
    for request, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length == 0:
            continue
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        place = start + length - 1 if select_index is None else int(select_index[request])
        input_ids[place] = new_tokens.view(-1)[request]


def copy_all_layer_kv_cache_cpu(
    addresses: torch.Tensor, strides: torch.Tensor, targets: torch.Tensor, sources: torch.Tensor
) -> None:
    """Copy slot sources[i] to slot targets[i] in every buffer, by address and bytes a slot; reads come before writes."""
    if targets.numel() == 0:
        return
    num_slots = int(max(targets.max(), sources.max())) + 1
    to, origin = targets.numpy(), sources.numpy()
    for address, stride in zip(addresses.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (num_slots * stride)).from_address(address)
        rows = np.frombuffer(memory, dtype=np.uint8).reshape(num_slots, stride)
        rows[to] = rows[origin].copy()
