"""What one GPU has to hold: its share of weights and of cached tokens. More than it has cannot be served, whatever it costs.

Counted from the sizes in config.json: attention, MLP and experts, embedding and head (as if not tied), the cache in bfloat16.
Norms, activations, graphs and the drafter come on top, so what is refused here is short by more than that.
"""

from __future__ import annotations

from breakeven.costs.kernels.times import WEIGHT_BYTES
from breakeven.costs.prior.architecture import GroupedHeads, TargetShape

__all__ = ["cache_bytes", "weight_bytes"]

_BFLOAT16 = 2.0


def weight_bytes(shape: TargetShape, parallel: int) -> float:
    """Bytes of weights on one of `parallel` GPUs."""
    hidden, heads, precisions = shape.hidden, shape.attention, shape.precisions
    if isinstance(heads, GroupedHeads):
        attention = hidden * heads.head_dim * (2 * heads.heads + 2 * heads.kv_heads)
    else:
        queries = heads.q_rank or hidden
        attention = (
            hidden * (heads.q_rank or 0)
            + queries * heads.heads * (heads.nope_dim + heads.rope_dim)
            + hidden * (heads.kv_rank + heads.rope_dim)
            + heads.kv_rank * heads.heads * (heads.nope_dim + heads.v_dim)
            + heads.heads * heads.v_dim * hidden
        )
    total = shape.num_layers * attention * WEIGHT_BYTES[precisions.attention]
    total += shape.num_dense_layers * 3 * hidden * shape.dense_intermediate * WEIGHT_BYTES[precisions.dense]
    if shape.experts is not None:
        routed = shape.experts.num * 3 * hidden * shape.experts.intermediate * WEIGHT_BYTES[precisions.experts]
        total += shape.experts.num_layers * (routed + 3 * hidden * shape.experts.shared * WEIGHT_BYTES[precisions.shared])
    return (total + 2 * shape.vocab * hidden * _BFLOAT16) / parallel


def cache_bytes(shape: TargetShape, context: int, parallel: int) -> float:
    """Bytes of one request's cached keys and values on one GPU: split by heads where there are several, a latent whole on each."""
    heads = shape.attention
    if isinstance(heads, GroupedHeads):
        per_token = 2 * max(heads.kv_heads / parallel, 1.0) * heads.head_dim * _BFLOAT16
    else:
        per_token = (heads.kv_rank + heads.rope_dim) * _BFLOAT16
    tokens = (shape.num_layers - shape.num_sliding) * context + shape.num_sliding * min(context, shape.sliding_window)
    return tokens * per_token
