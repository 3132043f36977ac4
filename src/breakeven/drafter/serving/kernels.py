"""Matrix products for one to a few dozen rows, where decoding is bound by reading weights and the layout decides the time.

On a CPU, `F.linear` for 4 rows costs about twice what it costs for 1 although the same bytes are read. oneDNN's prepacked layout
keeps the time flat from 1 to 8 rows and is the fastest of the layouts tried at every number of rows, with AVX2 as with AVX-512
(figures in docs/log.md), so verifying four tokens costs about one step. Packing replaces the plain layout, so memory does not
double.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

__all__ = ["Matmul", "rms_norm"]

# The packed layout is chosen for this many rows and serves any number. Packed for 1, it is up to 1.5 times slower for 4.
PACKED_ROWS = 16


class Matmul:
    """`x [rows, in] -> x @ weight.T [rows, out]` with the weight packed once."""

    __slots__ = ("_packed", "_weight")

    def __init__(self, weight: Tensor) -> None:
        self._weight: Tensor | None = weight
        self._packed: Tensor | None = None
        if _can_pack(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_ROWS)
            self._weight = None

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed is not None:
            result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
            return result
        assert self._weight is not None
        return F.linear(x, self._weight)


def _can_pack(weight: Tensor) -> bool:
    """Whether this build and processor have the packed product; without native bfloat16, oneDNN refuses that type."""
    if (
        weight.device.type != "cpu"
        or not torch.backends.mkldnn.is_available()
        or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    ):
        return False
    return weight.dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, computed in float32 as transformers does."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)
