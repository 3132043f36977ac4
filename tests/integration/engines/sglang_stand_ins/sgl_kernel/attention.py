"""Attention over the paged KV cache, registered as `torch.ops.sgl_kernel.*`, where SGLang's backend looks for it.

Shapes: T tokens of the batch, R requests, H query heads, G key/value heads (H a multiple of G), D head size, S slots of the cache.
A row of `req_to_token` maps positions of one request to slots. SGLang's own kernels do much more; what nothing here uses raises.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["decode_attention_cpu", "extend_attention_cpu"]

_LIBRARY = torch.library.Library("sgl_kernel", "DEF")
_LIBRARY.define(
    "decode_attention_cpu(Tensor query, Tensor(a!) keys, Tensor(b!) values, float key_scale, float value_scale, Tensor(c!) out, "
    "Tensor? new_keys, Tensor? new_values, Tensor slots, Tensor scratch, Tensor req_to_token, Tensor rows, Tensor lengths, "
    "float scaling, float logit_cap, bool cross, int window, Tensor? encoder_lengths, Tensor? sinks) -> ()"
)
_LIBRARY.define(
    "extend_attention_cpu(Tensor query, Tensor? new_keys, Tensor? new_values, Tensor(a!) out, Tensor keys, Tensor values, "
    "float key_scale, float value_scale, Tensor req_to_token, Tensor rows, Tensor lengths, Tensor extend_lengths, "
    "Tensor extend_starts, int max_extend_length, float scaling, float logit_cap, bool cross, int window, "
    "Tensor? encoder_lengths, Tensor? sinks, Tensor? tree_mask, bool causal) -> ()"
)


def decode_attention_cpu(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    key_scale: float,
    value_scale: float,
    out: torch.Tensor,
    new_keys: torch.Tensor | None,
    new_values: torch.Tensor | None,
    slots: torch.Tensor,
    scratch: torch.Tensor,
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    lengths: torch.Tensor,
    scaling: float,
    logit_cap: float,
    cross: bool,
    window: int,
    encoder_lengths: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """One new token a request: its keys and values go to `slots`, then it sees the first `lengths` positions of its row.

    query, out [R, H, D]; keys, values [S, G, D], written; new_keys, new_values [R, G, D] or None where they are there already.
    """
    _refuse(key_scale, value_scale, logit_cap, cross, window, encoder_lengths, sinks)
    if new_keys is not None and new_values is not None:
        keys[slots] = new_keys.reshape(-1, *keys.shape[1:])
        values[slots] = new_values.reshape(-1, *values.shape[1:])
    for request, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        seen = req_to_token[row, :length].long()
        out[request] = _attend(query[request : request + 1], keys[seen], values[seen], scaling, None)[0]


def extend_attention_cpu(
    query: torch.Tensor,
    new_keys: torch.Tensor | None,
    new_values: torch.Tensor | None,
    out: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    key_scale: float,
    value_scale: float,
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    lengths: torch.Tensor,
    extend_lengths: torch.Tensor,
    extend_starts: torch.Tensor,
    max_extend_length: int,
    scaling: float,
    logit_cap: float,
    cross: bool,
    window: int,
    encoder_lengths: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    causal: bool,
) -> None:
    """Several new tokens a request: a prompt, or drafts to verify. All see the cached prefix, and of each other what a mask shows.

    query, out [T, H, D]; keys, values [S, G, D]; lengths [R] with the new tokens, of which request r has extend_lengths[r] from
    extend_starts[r] on. tree_mask: n x n truth values a request one after the other, row sees column; None: those before it.
    """
    _refuse(key_scale, value_scale, logit_cap, cross, window, encoder_lengths, sinks)
    if new_keys is None or new_values is None:
        raise NotImplementedError("extend_attention_cpu without keys: the stand-in for SGLang's kernels does not do it")
    counts = extend_lengths.tolist()
    if tree_mask is not None and tree_mask.numel() < sum(count * count for count in counts):
        raise ValueError(f"a tree mask of {tree_mask.numel()} for {counts} new tokens; expected the squares of these together")
    mask_start = 0
    for row, length, count, start in zip(rows.tolist(), lengths.tolist(), counts, extend_starts.tolist(), strict=True):
        prefix, new = length - count, slice(start, start + count)
        seen = req_to_token[row, :prefix].long()
        among = torch.ones(count, count, dtype=torch.bool)
        if tree_mask is not None:
            among = tree_mask[mask_start : mask_start + count * count].view(count, count).bool()
            mask_start += count * count
        elif causal:
            among = among.tril()
        mask = torch.cat([torch.ones(count, prefix, dtype=torch.bool), among], dim=1)
        out[new] = _attend(
            query[new],
            torch.cat([keys[seen], new_keys[new].reshape(count, *keys.shape[1:]).to(keys.dtype)]),
            torch.cat([values[seen], new_values[new].reshape(count, *values.shape[1:]).to(values.dtype)]),
            scaling,
            mask,
        )


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """query [n, H, D], keys and values [m, G, D], mask [n, m] -> [n, H, D]."""
    attended = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys.to(query.dtype).transpose(0, 1)[None],
        values.to(query.dtype).transpose(0, 1)[None],
        attn_mask=mask,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return attended[0].transpose(0, 1)


def _refuse(
    key_scale: float,
    value_scale: float,
    logit_cap: float,
    cross: bool,
    window: int,
    encoder_lengths: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    asked = {
        "scaled keys or values": (key_scale, value_scale) != (1.0, 1.0),
        "capped logits": logit_cap > 0,
        "cross attention": cross or encoder_lengths is not None,
        "a sliding window": window > 0,
        "attention sinks": sinks is not None,
    }
    if wanted := [name for name, there in asked.items() if there]:
        raise NotImplementedError(f"{', '.join(wanted)}: the stand-in for SGLang's kernels does not do it")


_LIBRARY.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
_LIBRARY.impl("extend_attention_cpu", extend_attention_cpu, "CPU")
