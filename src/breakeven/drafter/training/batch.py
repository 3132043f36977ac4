"""One packed batch on the device: a fixed number of rows, so that compiled kernels see one shape.

Rows past the last sample are padding: a sample of their own that nothing looks at and nothing judges.
Shapes: N rows, H hidden, U judged rows, K steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.capture.packing import sent
from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.training.rows import JudgedRows, judged_rows

__all__ = ["TrainingBatch", "training_batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    token_ids: Tensor  # [N]
    positions: Tensor  # [N]
    samples: Tensor  # [N] int32
    auxiliary: Tensor  # [N, 3H]
    last: Tensor  # [N, H]
    rows: Tensor  # [U] judged teacher rows
    depth: Tensor  # [U]
    starts: NDArray[np.int64]  # on the host, padding's start and end included
    judged: JudgedRows  # on the host
    num_tokens: int  # without padding


def training_batch(
    packed: PackedStates, num_rows: int, known: NDArray[np.bool_], num_steps: int, judged: JudgedRows | None = None
) -> TrainingBatch:
    """Pad `packed` to `num_rows` rows.

    known: [V] bool, the draft vocabulary. `judged` spares a wait for the device where the caller has worked it out from samples.
    """
    num_tokens = len(packed.token_ids)
    padding = num_rows - num_tokens
    assert padding >= 0, (num_tokens, num_rows)
    starts = packed.starts.cpu().numpy()
    if judged is None:
        judged = judged_rows(packed.token_ids.cpu().numpy(), packed.loss_mask.cpu().numpy(), starts, known, num_steps)
    device = packed.auxiliary.device

    def padded(tensor: Tensor, value: int = 0) -> Tensor:
        tensor = tensor.to(device)
        if not padding:
            return tensor
        return torch.cat([tensor, tensor.new_full((padding, *tensor.shape[1:]), value)])

    return TrainingBatch(
        token_ids=padded(packed.token_ids),
        positions=padded(packed.positions),
        samples=padded(packed.samples, len(starts) - 1),
        auxiliary=padded(packed.auxiliary),
        last=padded(packed.last),
        rows=sent(judged.rows, device),
        depth=sent(judged.depth, device),
        starts=np.append(starts, num_rows) if padding else starts,
        judged=judged,
        num_tokens=num_tokens,
    )
