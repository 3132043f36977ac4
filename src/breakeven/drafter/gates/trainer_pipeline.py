"""This project's own trainer as the gates see it: the same module, objective, batches and optimiser that a training uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.preparing import TargetCapture
from breakeven.drafter.gates.pipeline import Depths, Pipeline
from breakeven.drafter.training.batch import training_batch
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.optimiser import Optimiser
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.drafter.training.rows import known_tokens
from breakeven.drafter.training.states_source import StatesSource

__all__ = ["trainer_pipeline"]

# Batches hold a multiple of this many rows (attention kernels work in blocks).
ROWS_STEP = 128
# A gate trains for a few hundred steps at most; the rate rises over the first of them and stays.
WARMUP_STEPS = 10
# The loss of a bfloat16 objective against a float32 oracle.
HALF_TOLERANCE = 0.03


def trainer_pipeline(objective: FastObjective, capture: TargetCapture, plan: TrainPlan) -> Pipeline:
    """The pipeline of `objective`'s head. Its optimiser lives as long as the pipeline, so `fit` may be called again to go on."""
    module = objective.drafter
    weights = np.array(plan.objective.weights)
    known = known_tokens(module.target_ids.cpu().numpy(), module.config.shape.vocab_size)
    parameters = dict(objective.named_parameters())
    optimiser = Optimiser(parameters, plan.optimiser)
    done = 0

    def depths(packed: PackedStates) -> Depths:
        rows = -(-len(packed.token_ids) // ROWS_STEP) * ROWS_STEP
        batch = training_batch(packed, rows, known, len(weights))
        with torch.no_grad():
            _, sums, correct, joint = objective(batch, _scales(weights, batch.judged.num_trained, module.embed))
        trained = batch.judged.num_trained
        return Depths(
            losses=tuple(
                float(total) / int(count) if count else float("nan") for total, count in zip(sums.tolist(), trained, strict=True)
            ),
            num_trained=tuple(map(int, trained)),
            num_correct=tuple(map(int, correct.tolist())),
            num_counted=tuple(map(int, batch.judged.num_counted)),
            num_chains=tuple(map(int, batch.judged.num_chains)),
            num_chains_correct=tuple(map(int, joint.tolist())),
        )

    def fit(samples: Sequence[Sample], num_steps: int) -> None:
        nonlocal done
        corpus = Corpus(samples, known, len(weights), plan.batches.tokens)
        rows = min(plan.batches.tokens, -(-corpus.num_tokens // ROWS_STEP) * ROWS_STEP)
        states = StatesSource(capture, corpus, rows, keep=plan.keep_states == "auto")
        order = Order(corpus.lengths, rows, num_steps, plan.seed + done)  # an epoch is one batch at least
        batches = order.from_batch(0)
        for _ in range(num_steps):
            _, chosen = next(batches)
            batch = states.batch(chosen)
            loss, *_ = objective(batch, _scales(weights, batch.judged.num_trained, module.embed))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), plan.optimiser.clip)
            done += 1
            optimiser.step(min(1.0, done / WARMUP_STEPS))

    return Pipeline(
        module=module,
        config=module.config,
        capture=capture,
        target_embed=module.embed,
        weights=module.to_weights,
        depths=depths,
        fit=fit,
        tensors=module.checkpoint_tensors,
        tolerance=1e-3 if objective.dtype == torch.float32 else HALF_TOLERANCE,
    )


def _scales(step_weights: NDArray[np.float64], num_trained: NDArray[np.int64], like: Tensor) -> Tensor:
    return torch.from_numpy(step_weights / np.maximum(num_trained, 1)).float().to(like.device)
