"""The loop: batches in, a drafter out, killed and continued at will.

A step is `per_step` batches, shared among processes, each divided by the number of trained rows of the **whole** step: so the same
plan gives the same losses on one process or many. Nothing waits for the device but the lines of the log.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.capture.packing import sent
from breakeven.drafter.model.eagle3 import Eagle3Weights
from breakeven.drafter.training.checkpoint import (
    Checkpoint,
    newest_checkpoint,
    read_checkpoint,
    remove_old,
    write_checkpoint,
    write_whole,
)
from breakeven.drafter.training.corpus import Corpus
from breakeven.drafter.training.metrics import Metrics
from breakeven.drafter.training.module import Eagle3Module
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.optimiser import Optimiser
from breakeven.drafter.training.order import Order
from breakeven.drafter.training.plan import plan_changes
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.drafter.training.processes import Processes, like, spread, synchronised, whole
from breakeven.drafter.training.schedule import rate_share
from breakeven.drafter.training.states_source import StatesSource
from breakeven.errors import BreakevenError, PlanError, StoreError

__all__ = ["AcceptLength", "Progress", "Trained", "Trainer", "refuse_other_plan", "refuse_uneven"]

BEST = "best"
WEIGHTS, FACTS = "weights.safetensors", "best.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLength:
    """Offline, free-running, on held-out prompts; the interval is over prompts."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of the log for people. Lists are by step of the training-time test."""

    step: int
    num_steps: int
    epoch: int
    loss: float
    accuracy: tuple[float, ...]
    tokens_per_s: float
    left_s: float
    accept_length: AcceptLength | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """`best` holds weights.safetensors, the tensors of an EAGLE-3 folder. Where nothing is evaluated they are the last ones, and
    `accept_length` is None."""

    best: Path
    best_step: int
    num_steps: int
    accept_length: AcceptLength | None


class _Window:
    """Sums since the last line of the log, on the device."""

    def __init__(self, num_steps: int, device: torch.device) -> None:
        self.sums = torch.zeros(3, num_steps, dtype=torch.float64, device=device)  # losses, correct, joint
        self.counts = np.zeros((3, num_steps), dtype=np.int64)  # trained, counted, chains
        self.norm = torch.zeros((), dtype=torch.float64, device=device)
        self.num_tokens = 0
        self.num_norms = 0


def refuse_other_plan(folder: Path, step: int, facts: Mapping[str, Any], plan: TrainPlan) -> None:
    """`facts` of the checkpoint at `step` in `folder` say by which plan it was trained.

    Raises:
        PlanError: by another one than `plan`, with every key that differs.
    """
    if changes := plan_changes(facts["plan"], plan):
        raise _other(folder, step, changes)


def _other(folder: Path, step: int, changes: Sequence[str]) -> PlanError:
    return PlanError(
        f"{folder} holds a training of another plan at step {step}; it cannot go on with\n  "
        + "\n  ".join(changes)
        + "\nname another folder in out, or restore the plan"
    )


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
    ) -> None:
        refuse_uneven(plan, processes)
        self.plan = plan
        self.corpus = corpus
        self.folder = folder
        self.processes = processes
        self._states = states
        self._objective = objective
        self._drafter = objective.drafter
        self._evaluate = evaluate
        self._tell = tell
        self._data_name = data_name
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
        self._best: dict[str, Any] | None = None

    def run(self) -> Trained:
        """Train to the end, from the newest checkpoint if there is one.

        Raises:
            PlanError: the folder holds a training of another plan.
            StoreError: a checkpoint is damaged or cannot be written.
            BreakevenError: the loss is no longer a number.
        """
        step = self._resume()
        metrics = Metrics(self.folder, after_step=step) if self.processes.rank == 0 else None
        try:
            self._train(step, metrics)
        finally:
            if metrics is not None:
                metrics.close()
        best = self.processes.tell_all(self._best)
        return Trained(
            best=self._best_folder(best["step"]),
            best_step=best["step"],
            num_steps=self.num_steps,
            accept_length=AcceptLength(**best["accept_length"]) if best["accept_length"] else None,
        )

    def _train(self, step: int, metrics: Metrics | None) -> None:
        """From `step` on to the end."""
        batches = self._order.from_batch(step * self.plan.batches.per_step)
        window = _Window(len(self._step_weights), self.processes.device)
        window_started, started_step = time.perf_counter(), step
        seconds_training = 0.0
        while step < self.num_steps:
            epoch = self._train_step(step, batches, window)
            step += 1
            if step % self.plan.log_every and step != self.num_steps:
                continue
            values = self._read_out(window, step)
            seconds = time.perf_counter() - window_started
            seconds_training += seconds
            values |= {"epoch": epoch, "tokens_per_s": round(window.num_tokens / seconds, 1), "seconds": round(seconds, 3)}
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
                self._save(step)
            window = _Window(len(self._step_weights), self.processes.device)
            window_started = time.perf_counter()

    def weights(self) -> dict[str, Tensor]:
        """All weights, whole, float32, on the CPU; every process must ask."""
        return {name: whole(weight) for name, weight in self._parameters.items()}

    def _is_due(self, step: int, every: int) -> bool:
        return step == self.num_steps or (every > 0 and step % every == 0)

    def _train_step(self, step: int, batches: Iterator[tuple[int, NDArray[np.int64]]], window: _Window) -> int:
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
            window.sums += torch.stack([sums.double(), correct.double(), joint.double()])
            window.counts += np.stack([batch.judged.num_trained, batch.judged.num_counted, batch.judged.num_chains])
        window.num_tokens += sum(int(self.corpus.lengths[samples].sum()) for _, samples in chosen)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), self.plan.optimiser.clip)
        window.norm += norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        window.num_norms += 1
        optimiser = self.plan.optimiser
        self._optimiser.step(rate_share(step, self.num_steps, optimiser.warmup_share, optimiser.final_share))
        return chosen[-1][0]

    def _read_out(self, window: _Window, step: int) -> dict[str, Any]:
        sums = self.processes.add_up(window.sums).cpu().numpy()
        counts = self.processes.add_up(torch.from_numpy(window.counts).to(self.processes.device)).cpu().numpy()
        losses, accuracy, joint = (part / np.maximum(count, 1) for part, count in zip(sums, counts, strict=True))
        norm = float(window.norm) / window.num_norms
        if not (np.isfinite(losses).all() and np.isfinite(norm)):
            raise BreakevenError(
                f"the loss or its gradient is no longer a number within the steps up to {step} (losses by step "
                f"{[round(float(loss), 3) for loss in losses]}, gradient norm {norm}); the last checkpoint is from before. "
                "Lower optimiser.learning_rate, or look for NaN in the target's states (precision: float32 tells)"
            )
        optimiser = self.plan.optimiser
        return {
            "loss": float((losses * self._step_weights).sum()),
            "losses": losses.tolist(),
            "accuracy": accuracy.tolist(),
            "joint_accuracy": joint.tolist(),
            "coverage": float(counts[0, 0] / max(counts[1, 0], 1)),
            "gradient_norm": norm,
            "rate_share": rate_share(step - 1, self.num_steps, optimiser.warmup_share, optimiser.final_share),
            "tokens": window.num_tokens,
        }

    def _whole_drafter(self) -> Eagle3Module:
        """The head with all its weights, whatever is sharded."""
        if self.plan.parallel != "fsdp" or self.processes.count == 1:
            return self._drafter
        own = self._drafter
        copy = Eagle3Module(own.config, own.target_ids, own.embed, own.scales.tolist())
        copy.load_state_dict({name.removeprefix("drafter."): weight for name, weight in self.weights().items()})
        return copy

    def _evaluated(self, step: int) -> AcceptLength | None:
        drafter = self._whole_drafter()
        accept_length = None
        if self.processes.rank == 0:
            if self._evaluate is not None:
                with torch.no_grad():
                    accept_length = self._evaluate(drafter.to_weights())
            is_best = self._best is None or accept_length is None or accept_length.mean > self._best["accept_length"]["mean"]
            if is_best:
                mean = None if accept_length is None else {name: getattr(accept_length, name) for name in ("mean", "low", "high")}
                self._best = {"step": step, "accept_length": mean}
                write_whole(self._best_folder(step), {WEIGHTS: drafter.checkpoint_tensors(), FACTS: self._best})
        self.processes.wait()
        return accept_length

    def _save(self, step: int) -> None:
        weights = self.weights()
        optimiser = {name: whole(tensor) for name, tensor in self._optimiser.state()}
        if self.processes.rank == 0:
            facts = {
                "plan": self.plan.model_dump(mode="json"),
                "data": self._data_facts(),
                "scales": self._drafter.scales.tolist(),
                "best": self._best,
            }
            write_checkpoint(self.folder, Checkpoint(step=step, weights=weights, optimiser=optimiser, facts=facts))
            remove_old(self.folder, self.plan.keep_checkpoints)
            # only now: a run killed before would go on from a checkpoint that names an earlier best
            for path in (self.folder / BEST).glob("*"):
                if self._best is not None and path != self._best_folder(self._best["step"]):
                    shutil.rmtree(path, ignore_errors=True)
        self.processes.wait()

    def _best_folder(self, step: int) -> Path:
        return self.folder / BEST / f"step-{step:08d}"

    def _data_facts(self) -> dict[str, Any]:
        return {"name": self._data_name, "num_samples": len(self.corpus.samples), "num_tokens": self.corpus.num_tokens}

    def _resume(self) -> int:
        newest = newest_checkpoint(self.folder)
        if newest is None:
            return 0
        checkpoint = read_checkpoint(newest)
        refuse_other_plan(self.folder, checkpoint.step, checkpoint.facts, self.plan)
        if checkpoint.facts["data"] != self._data_facts():
            raise _other(self.folder, checkpoint.step, [f"the data: {checkpoint.facts['data']} -> {self._data_facts()}"])
        if checkpoint.weights.keys() != self._parameters.keys():
            raise StoreError(f"{newest}: holds other weights than this plan's head; name another folder in out")
        with torch.no_grad():
            for name, weight in self._parameters.items():
                weight.copy_(like(checkpoint.weights[name], weight))
            self._drafter.scales.copy_(torch.tensor(checkpoint.facts["scales"]))
        self._optimiser.load(
            {
                name: like(tensor, self._parameters[name.rpartition(".")[0]]) if tensor.dim() else tensor.to(self.processes.device)
                for name, tensor in checkpoint.optimiser.items()
            }
        )
        self._best = checkpoint.facts["best"]
        return checkpoint.step
