"""The training-time test over packed samples, fast: the same numbers as `objective_plain`, to rounding.

What makes it fast: the embeddings' half of the query-key-value product does not depend on the step, so it is made once and shifted;
attention merges (`attention`); the vocabulary is judged in slices, for judged rows only, with one row of teacher logits for all
steps (`vocabulary_loss`); and on a GPU the rest is compiled, stage by stage, so that every step runs the same kernels.

Shapes: N rows, H hidden, Q query heads, K key/value heads, D head dimension, W draft vocabulary, P rows of the qkv product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.model.rope import inverse_frequencies, rope_magnitude
from breakeven.drafter.training.batch import TrainingBatch
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module
from breakeven.drafter.training.vocabulary_loss import VocabularyLoss, rows_at_once

__all__ = ["FastObjective"]


class FastObjective(nn.Module):
    """The head and its objective in one module, so that wrappers for many GPUs see one forward pass."""

    target_head: Tensor
    frequencies: Tensor

    def __init__(self, drafter: Eagle3Module, target_head: Tensor, num_steps: int, dtype: torch.dtype, kernels: Kernels) -> None:
        """target_head: [W, H], the target's rows of the draft vocabulary; computing is done in `dtype`."""
        super().__init__()
        shape = drafter.config.shape
        self.drafter = drafter
        self.num_steps = num_steps
        self.dtype = dtype
        self.kernels = kernels
        self.magnitude = rope_magnitude(shape.rope_scaling)
        device = drafter.embed.device
        frequencies = inverse_frequencies(shape.rope_scaling, shape.head_dim, shape.rope_theta)
        self.register_buffer("target_head", target_head.to(device, dtype), persistent=False)
        self.register_buffer("frequencies", frequencies.to(device), persistent=False)

    def forward(self, batch: TrainingBatch, step_scales: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The weighted loss, which carries the gradient, and by step [steps]: the sum of losses over trained rows, correct guesses,
        and starts whose guesses up to this step are all correct.

        step_scales: [steps] float32, what one row's loss counts at each step: its weight over the number of trained rows.
        """
        normed = self._states(batch)
        head = self.drafter.head
        at_once = rows_at_once(self.num_steps, len(head), self.dtype, normed.device)
        loss, sums, correct = VocabularyLoss.apply(
            normed,
            head,
            batch.last.to(self.dtype),
            self.target_head,
            batch.rows,
            batch.depth,
            step_scales,
            at_once,
            self.kernels.softmax,
        )
        return loss, sums, correct.sum(1), correct.int().cumprod(0).sum(1)

    def _states(self, batch: TrainingBatch) -> Tensor:
        """The head's input [steps, N, H] at every step and row."""
        drafter, kernels, dtype = self.drafter, self.kernels, self.dtype
        shape = drafter.config.shape
        eps, hidden_size = shape.rms_norm_eps, shape.hidden_size
        heads = (shape.num_heads, shape.num_kv_heads, shape.head_dim)
        qkv = torch.cat([drafter.query, drafter.key, drafter.value]).to(dtype)
        of_embedding, of_state = qkv[:, :hidden_size].contiguous(), qkv[:, hidden_size:].contiguous()
        out, down = drafter.out.to(dtype), drafter.down.to(dtype)
        gate_up = torch.cat([drafter.gate, drafter.up]).to(dtype)
        hidden_norm, post_norm, norm = (weight.to(dtype) for weight in (drafter.hidden_norm, drafter.post_norm, drafter.norm))
        fc_norm = None if drafter.fc_norm is None else drafter.fc_norm.to(dtype)

        state = kernels.combine(batch.auxiliary, drafter.scales, fc_norm, drafter.fc.to(dtype), eps)
        embedded = drafter.embed[batch.token_ids].to(dtype)
        embedded = kernels.embed(embedded, drafter.embed_norm.to(dtype), of_embedding, eps)
        # at step k a row sees the token k + 1 further on; rows past the end belong to nobody
        embedded = F.pad(embedded, (0, 0, 0, self.num_steps))
        attend = kernels.attend(batch)
        num_rows = len(state)
        first_keys = first_values = None
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        outputs = []
        for step in range(self.num_steps):
            shifted = embedded[step + 1 : step + 1 + num_rows]
            queries, keys, values = kernels.project(
                state, hidden_norm, of_state, shifted, batch.positions + step, self.frequencies, self.magnitude, eps, heads
            )
            if first_keys is None or first_values is None:
                first_keys, first_values = keys, values
            else:
                own_keys.append(keys)
                own_values.append(values)
            mixed, lse = attend(queries, first_keys, first_values)
            if own_keys:
                mixed = kernels.merge(mixed, lse, queries, own_keys, own_values)
            hidden, normed = kernels.finish(state, mixed, out, post_norm, gate_up, down, norm, eps)
            state = normed if drafter.config.norm_output else hidden
            outputs.append(normed)
        return torch.stack(outputs)
