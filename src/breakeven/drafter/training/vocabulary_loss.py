"""Soft cross entropy over the draft vocabulary, a slice of rows at a time: [N, W] logits never exist for all rows at once.

The loss is a weighted sum over rows, so its gradient is known as soon as a slice's logits are: it is computed there and then, in
the forward pass, and the logits are forgotten. A row of teacher logits is computed once and serves all K steps that are held
against it. Only judged rows are computed at all, so prompts and padding cost nothing here.

Shapes: K steps, N rows, U judged rows, R rows of a slice, H hidden, W draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["SoftmaxPass", "VocabularyLoss", "rows_at_once", "softmax_pass"]

# student logits [K, R, W], teacher logits [R, W], gradient scales [K, R]
# -> gradient of the student's logits [K, R, W], cross entropy [K, R], whether both choose the same token [K, R]
SoftmaxPass = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

LOGITS_BYTES = 1 << 28
LOGITS_BYTES_CPU = 1 << 24


def rows_at_once(num_steps: int, draft_vocab_size: int, dtype: torch.dtype, device: torch.device) -> int:
    """A power of two of rows whose student logits take about a quarter of a gigabyte (16 MB on a CPU)."""
    budget = LOGITS_BYTES if device.type == "cuda" else LOGITS_BYTES_CPU
    fitting = budget // (num_steps * draft_vocab_size * dtype.itemsize)
    return max(16, min(4096, 1 << max(fitting, 1).bit_length() - 1))


def softmax_pass(student: Tensor, teacher: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Everything that reads the logits, in float32, written so that a compiler can fuse it into two passes over them."""
    teacher_logits = teacher.float()
    chances = teacher_logits.softmax(-1)
    logits = student.float()
    lse = logits.logsumexp(-1, keepdim=True)
    loss = lse[..., 0] - (chances * logits).sum(-1)
    correct = logits.argmax(-1) == teacher_logits.argmax(-1)
    gradient = (torch.exp(logits - lse) - chances) * scales[..., None]
    return gradient.to(student.dtype), loss, correct


class VocabularyLoss(torch.autograd.Function):
    """`apply(normed, head, ...)` returns the weighted loss, its sums by step [K], and correct guesses by step and start [K, N]."""

    @staticmethod
    def forward(
        ctx: Any,
        normed: Tensor,  # [K, N, H], the head's input at every step
        head: Tensor,  # [W, H] masters
        last: Tensor,  # [N, H] the target's, after its final norm
        target_head: Tensor,  # [W, H]
        rows: Tensor,  # [U] judged teacher rows
        depth: Tensor,  # [U] at how many steps
        step_scales: Tensor,  # [K] float32, what a row's loss counts at each step
        at_once: int,
        fused: SoftmaxPass,
    ) -> tuple[Tensor, Tensor, Tensor]:
        num_steps, num_rows, hidden = normed.shape
        dtype = normed.dtype
        working_head = head.to(dtype)
        steps = torch.arange(num_steps, device=normed.device)[:, None]
        sums = torch.zeros(num_steps, device=normed.device)
        # rows that are not judged at a step write to one row past the end, which nobody reads
        correct = torch.zeros(num_steps * num_rows + 1, dtype=torch.bool, device=normed.device)
        wanted = any(ctx.needs_input_grad[:2])
        gradient = normed.new_zeros(num_steps * num_rows + 1, hidden) if wanted else None
        head_gradient = torch.zeros_like(head, dtype=torch.float32) if wanted else None
        flat = normed.reshape(-1, hidden)
        # compiled kernels want every slice of one length; rows of depth 0 are judged nowhere
        padding = -len(rows) % at_once if normed.is_cuda else 0
        rows = torch.nn.functional.pad(rows, (0, padding))
        depth = torch.nn.functional.pad(depth, (0, padding))
        for first in range(0, len(rows), at_once):
            teacher_rows, levels = rows[first : first + at_once], depth[first : first + at_once]
            judged = levels > steps
            places = steps * num_rows + teacher_rows - 1 - steps
            inputs = flat[torch.where(judged, places, 0).flatten()]
            student = (inputs @ working_head.T).unflatten(0, (num_steps, -1))
            teacher = last[teacher_rows] @ target_head.T
            logit_gradient, loss, same = fused(student, teacher, judged * step_scales[:, None])
            sums += (loss * judged).sum(1)
            places = torch.where(judged, places, num_steps * num_rows).flatten()
            correct[places] = same.flatten()
            if gradient is not None and head_gradient is not None:
                logit_gradient = logit_gradient.flatten(0, 1)
                gradient[places] = logit_gradient @ working_head
                head_gradient += logit_gradient.T @ inputs
        ctx.save_for_backward(gradient, head_gradient)
        ctx.shape = normed.shape
        guesses = correct[:-1].view(num_steps, num_rows)
        ctx.mark_non_differentiable(sums, guesses)
        return (sums * step_scales).sum(), sums, guesses

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient, head_gradient = ctx.saved_tensors
        factor = upstream[0]
        to_normed = (gradient[:-1] * factor.to(gradient.dtype)).view(ctx.shape)
        return to_normed, head_gradient * factor, None, None, None, None, None, None, None
