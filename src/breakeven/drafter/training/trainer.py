"""The loop: batches in, a drafter out, killed and continued at will.

A step is `per_step` batches, shared among processes, each divided by the number of trained rows of the **whole** step: so the same
plan gives the same losses on one process or many. Nothing waits for the device but the lines of the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from breakeven.drafter.capture.packing import sent
from breakeven.drafter.model.eagle3 import Eagle3Weights
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.kept import Kept
from breakeven.drafter.training.metrics import Metrics
from breakeven.drafter.training.module import Eagle3Module
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.optimiser import Optimiser
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.drafter.training.processes import Processes, spread, synchronised
from breakeven.drafter.training.progress import AcceptLength, Progress, Trained
from breakeven.drafter.training.schedule import rate_share
from breakeven.drafter.training.states_source import StatesSource
from breakeven.drafter.training.window import Window
from breakeven.errors import PlanError

__all__ = ["Trainer", "refuse_uneven"]


def refuse_uneven(plan: TrainPlan, processes: Processes) -> None:
    """
    Raises:
        PlanError: processes would have batches of a step in different numbers.
    """
    if plan.batches.per_step % processes.count:
        raise PlanError(
            f"batches.per_step is {plan.batches.per_step}, which {processes.count} processes cannot share evenly; "
            f"expected a multiple of {processes.count}"
        )


class Trainer:
    """`evaluate` judges weights that lie on the device, in float32; it is called on the first process alone."""

    def __init__(
        self,
        *,
        plan: TrainPlan,
        corpus: Corpus,
        states: StatesSource,
        objective: FastObjective,
        folder: Path,
        processes: Processes,
        evaluate: Callable[[Eagle3Weights], AcceptLength] | None = None,
        tell: Callable[[Progress], None] = lambda progress: None,
        data_name: str = "",
        data_sha256: str = "",
    ) -> None:
        refuse_uneven(plan, processes)
        self.plan = plan
        self.corpus = corpus
        self.processes = processes
        self._states = states
        self._objective = objective
        self._drafter = objective.drafter
        self._evaluate = evaluate
        self._tell = tell
        self._order = Order(corpus.lengths, plan.batches.tokens, plan.epochs, plan.seed)
        self.num_steps = self._order.num_batches // plan.batches.per_step
        if plan.max_steps is not None:
            self.num_steps = min(self.num_steps, plan.max_steps)
        if not self.num_steps:
            raise PlanError(
                f"{self._order.num_batches} batches of {plan.batches.tokens} tokens in {plan.epochs} epochs do not make one step "
                f"of {plan.batches.per_step}; lower batches.per_step or batches.tokens, or raise epochs"
            )
        self._spread = spread(objective, plan.parallel, processes)
        self._parameters = dict(objective.named_parameters())
        self._optimiser = Optimiser(self._parameters, plan.optimiser)
        self._step_weights = np.array(plan.objective.weights)
        self.kept = Kept(
            folder=folder,
            plan=plan,
            data={
                "name": data_name,
                "num_samples": len(corpus.samples),
                "num_tokens": corpus.num_tokens,
                "sha256": data_sha256,
            },
            processes=processes,
            parameters=self._parameters,
            scales=self._drafter.scales,
            optimiser=self._optimiser,
        )

    def run(self) -> Trained:
        """Train to the end, from the newest checkpoint if there is one.

        Raises:
            PlanError: the folder holds a training of another plan.
            StoreError: a checkpoint is damaged or cannot be written.
            BreakevenError: the loss is no longer a number.
        """
        step = self.kept.resume()
        metrics = Metrics(self.kept.folder, after_step=step) if self.processes.rank == 0 else None
        try:
            self._train(step, metrics)
        finally:
            if metrics is not None:
                metrics.close()
        best = self.processes.tell_all(self.kept.best)
        return Trained(
            best=self.kept.best_folder(best["step"]),
            best_step=best["step"],
            num_steps=self.num_steps,
            accept_length=AcceptLength(**best["accept_length"]) if best["accept_length"] else None,
        )

    def _train(self, step: int, metrics: Metrics | None) -> None:
        """From `step` on to the end."""
        batches = self._order.from_batch(step * self.plan.batches.per_step)
        window = Window(len(self._step_weights), self.processes)
        window_started, started_step = time.perf_counter(), step
        seconds_training = 0.0
        while step < self.num_steps:
            epoch = self._train_step(step, batches, window)
            step += 1
            if step % self.plan.log_every and step != self.num_steps:
                continue
            values = window.means(self._step_weights, step)
            seconds = time.perf_counter() - window_started
            seconds_training += seconds
            values |= {"rate_share": self._rate_share(step - 1), "tokens": window.num_tokens, "epoch": epoch}
            values |= {"tokens_per_s": round(window.num_tokens / seconds, 1), "seconds": round(seconds, 3)}
            accept_length = self._evaluated(step) if self._is_due(step, self.plan.evaluation.every) else None
            if accept_length is not None:
                values["accept_length"] = accept_length.mean
            if metrics is not None:
                metrics.write(step, **values)
                self._tell(
                    Progress(
                        step=step,
                        num_steps=self.num_steps,
                        epoch=epoch,
                        loss=values["loss"],
                        accuracy=tuple(values["accuracy"]),
                        tokens_per_s=values["tokens_per_s"],
                        left_s=seconds_training / (step - started_step) * (self.num_steps - step),
                        accept_length=accept_length,
                    )
                )
            if self._is_due(step, self.plan.checkpoint_every):
                self.kept.save(step)
            window = Window(len(self._step_weights), self.processes)
            window_started = time.perf_counter()

    def _is_due(self, step: int, every: int) -> bool:
        return step == self.num_steps or (every > 0 and step % every == 0)

    def _train_step(self, step: int, batches: Iterator[tuple[int, NDArray[np.int64]]], window: Window) -> int:
        """One optimiser step; returns the epoch of its last batch."""
        chosen = list(islice(batches, self.plan.batches.per_step))
        num_trained = sum((self.corpus.num_trained[samples].sum(axis=0) for _, samples in chosen), np.zeros(1, dtype=np.int64))
        # averaged over processes by their wrapper, so multiplied by their number here
        weights = self._step_weights * self.processes.count / np.maximum(num_trained, 1)
        scales = sent(weights.astype(np.float32), self.processes.device)
        mine = chosen[self.processes.rank :: self.processes.count]
        for number, (_, samples) in enumerate(mine, start=1):
            batch = self._states.batch(samples)
            objective = synchronised(self._spread, last=number == len(mine))
            loss, sums, correct, joint = objective(batch, scales)
            loss.backward()
            window.add_batch(batch.judged, sums, correct, joint)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self.plan.optimiser.clip)
        window.add_step(sum(int(self.corpus.lengths[samples].sum()) for _, samples in chosen), norm)
        self._optimiser.step(self._rate_share(step))
        return chosen[-1][0]

    def _rate_share(self, step: int) -> float:
        return rate_share(step, self.num_steps, self.plan.optimiser.warmup_share, self.plan.optimiser.final_share)

    def _whole_drafter(self) -> Eagle3Module:
        """The head with all its weights, whatever is sharded."""
        if self.plan.parallel != "fsdp" or self.processes.count == 1:
            return self._drafter
        own = self._drafter
        copy = Eagle3Module(own.config, own.target_ids, own.embed, own.scales.tolist())
        copy.load_state_dict({name.removeprefix("drafter."): weight for name, weight in self.kept.weights().items()})
        return copy

    def _evaluated(self, step: int) -> AcceptLength | None:
        drafter = self._whole_drafter()
        accept_length = None
        if self.processes.rank == 0:
            if self._evaluate is not None:
                with torch.no_grad():
                    accept_length = self._evaluate(drafter.to_weights())
            self.kept.keep_if_best(step, drafter.checkpoint_tensors(), accept_length)
        self.processes.wait()
        return accept_length
