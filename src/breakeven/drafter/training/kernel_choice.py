"""Compiled kernels where they run and are right; else plain ones, and a line that says why.

A compiler that fails, or a kernel that is wrong on this GPU with these shapes, would cost hours later. So before training starts
the objective runs once each way on the same made-up batch, forwards and backwards, and the outcomes are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.training import attention, kernels, vocabulary_loss
from breakeven.drafter.training.batch import TrainingBatch, training_batch
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.rows import known_tokens

__all__ = ["choose_kernels", "compiled_kernels", "first_that_agrees", "made_up_batch"]

# bfloat16 has 8 bits; two orders of summation over K steps differ by less than this, a wrong mask or scale by far more.
MAX_LOSS_DEPARTURE = 0.02
MIN_GRADIENT_COSINE = 0.98


def compiled_kernels(*, stages: bool = True, flex: bool = True) -> Kernels:
    """Every stage compiled for one shape, attention as flex attention."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, dynamic=False)

    chosen = Kernels(compiled=stages or flex)
    if stages:
        chosen = replace(
            chosen,
            combine=compiled(kernels.combine),
            embed=compiled(kernels.embed),
            project=compiled(kernels.project),
            merge=compiled(attention.merge_own_steps),
            finish=compiled(kernels.finish),
            softmax=compiled(vocabulary_loss.softmax_pass),
        )
    if flex:
        compiled_flex = compiled(flex_attention)
        chosen = replace(chosen, attend=lambda batch: attention.flex_attend(batch.samples, batch.starts, compiled_flex))
    return chosen


def choose_kernels(objective: FastObjective, num_rows: int, sample_length: int) -> Kernels:
    """The fastest kernels that give what the plain ones give; `notes` say what was given up. Leaves no gradients behind.

    `sample_length` is that of a usual sample: the made-up batch is packed from such.
    """
    if objective.drafter.embed.device.type != "cuda":
        return Kernels(notes=("no GPU: kernels are not compiled, attention goes sample by sample",))
    # one kernel for each number of own steps to merge, with and without gradients
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 4 * objective.num_steps + 8)
    candidates = {
        "compiled kernels": compiled_kernels(),
        "flex attention": compiled_kernels(stages=False),
        "compiled stages": compiled_kernels(flex=False),
    }
    return first_that_agrees(objective, candidates, made_up_batch(objective, num_rows, sample_length))


def first_that_agrees(objective: FastObjective, candidates: Mapping[str, Kernels], batch: TrainingBatch) -> Kernels:
    """The first of `candidates` whose loss and gradients on `batch` are those of the plain kernels; else the plain ones."""
    expected = _run(objective, Kernels(), batch)
    notes: list[str] = []
    for name, candidate in candidates.items():
        try:
            departure = _departure(_run(objective, candidate, batch), expected)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            # compilers fail in many ways, and each has the same remedy
            departure = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
        if departure is None:
            return replace(candidate, notes=tuple(notes))
        notes.append(f"{name} not used: {departure}")
    return Kernels(notes=(*notes, "nothing is compiled and attention goes sample by sample: several times slower"))


def made_up_batch(objective: FastObjective, num_rows: int, sample_length: int) -> TrainingBatch:
    """Random states of samples of about `sample_length`, the first fifth of each a prompt."""
    drafter = objective.drafter
    shape, device = drafter.config.shape, drafter.embed.device
    generator = torch.Generator().manual_seed(0)
    starts = np.append(np.arange(0, num_rows, max(2, min(sample_length, num_rows))), num_rows)
    lengths = np.diff(starts)
    positions = np.concatenate([np.arange(length) for length in lengths])
    # tokens of the draft vocabulary, so that all answer rows are judged
    token_ids = drafter.target_ids.cpu()[torch.randint(0, len(drafter.target_ids), (num_rows,), generator=generator)]
    scales = drafter.scales.cpu().repeat_interleave(shape.hidden_size)
    packed = PackedStates(
        token_ids=token_ids,
        positions=torch.from_numpy(positions),
        samples=torch.from_numpy(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)),
        starts=torch.from_numpy(starts),
        loss_mask=torch.from_numpy(positions >= np.repeat(lengths, lengths) // 5),
        auxiliary=(torch.randn(num_rows, 3 * shape.hidden_size, generator=generator) / scales).to(device, objective.dtype),
        last=torch.randn(num_rows, shape.hidden_size, generator=generator).to(device, objective.dtype),
    )
    known = known_tokens(drafter.target_ids.cpu().numpy(), shape.vocab_size)
    return training_batch(packed, num_rows, known, objective.num_steps)


def _run(objective: FastObjective, candidate: Kernels, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
    """The loss and all gradients end to end, in float32 on the CPU."""
    before, objective.kernels = objective.kernels, candidate
    try:
        counts = torch.from_numpy(np.maximum(batch.judged.num_trained, 1)).float()
        loss, *_ = objective(batch, (0.8 ** torch.arange(objective.num_steps) / counts).to(batch.last.device))
        loss.backward()
        gradients = [weight.grad.flatten() for weight in objective.parameters() if weight.grad is not None]
        return loss.detach().float().cpu(), torch.cat(gradients).float().cpu()
    finally:
        objective.kernels = before
        objective.zero_grad(set_to_none=True)


def _departure(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> str | None:
    loss, expected_loss = found[0].item(), expected[0].item()
    if not abs(loss - expected_loss) <= MAX_LOSS_DEPARTURE * abs(expected_loss):
        return f"the loss of a made-up batch is {loss:.4f} with it and {expected_loss:.4f} without"
    cosine = torch.nn.functional.cosine_similarity(found[1].double(), expected[1].double(), dim=0).item()
    if not cosine >= MIN_GRADIENT_COSINE:
        return f"the gradients of a made-up batch have a cosine of {cosine:.4f} to those without it; expected {MIN_GRADIENT_COSINE}"
    return None
