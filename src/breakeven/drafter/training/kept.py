"""What a training keeps on disk: checkpoints to go on from, and the best weights so far."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from breakeven.drafter.training.checkpoint import (
    Checkpoint,
    newest_checkpoint,
    read_checkpoint,
    remove_old,
    write_checkpoint,
    write_folder,
)
from breakeven.drafter.training.optimiser import Optimiser
from breakeven.drafter.training.plan import plan_changes
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.drafter.training.processes import Processes, like, whole
from breakeven.drafter.training.progress import AcceptLength
from breakeven.errors import PlanError, StoreError

__all__ = ["BEST", "WEIGHTS", "Kept", "refuse_other_plan"]

BEST = "best"
WEIGHTS, FACTS = "weights.safetensors", "best.json"


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


@dataclass(slots=True, kw_only=True)
class Kept:
    """`data` says what is trained on; `best` is {"step", "accept_length"} of the best weights, None before there are any."""

    folder: Path
    plan: TrainPlan
    data: Mapping[str, Any]
    processes: Processes
    parameters: Mapping[str, Tensor]
    scales: Tensor
    optimiser: Optimiser
    best: dict[str, Any] | None = None

    def weights(self) -> dict[str, Tensor]:
        """All weights, whole, float32, on the CPU; every process must ask."""
        return {name: whole(weight) for name, weight in self.parameters.items()}

    def resume(self) -> int:
        """Weights, optimiser and best of the newest checkpoint, put where they belong; returns its step, 0 where there is none.

        Raises:
            PlanError: it is of another plan or other data.
            StoreError: it is damaged, or holds another head.
        """
        newest = newest_checkpoint(self.folder)
        if newest is None:
            return 0
        checkpoint = read_checkpoint(newest)
        refuse_other_plan(self.folder, checkpoint.step, checkpoint.facts, self.plan)
        # checkpoints of earlier versions know no hash
        before = {"sha256": self.data["sha256"], **checkpoint.facts["data"]}
        if changes := [
            f"the data's {key}: {before.get(key)} -> {value}" for key, value in self.data.items() if before.get(key) != value
        ]:
            raise _other(self.folder, checkpoint.step, changes)
        if checkpoint.weights.keys() != self.parameters.keys():
            raise StoreError(f"{newest}: holds other weights than this plan's head; name another folder in out")
        with torch.no_grad():
            for name, weight in self.parameters.items():
                weight.copy_(like(checkpoint.weights[name], weight))
            self.scales.copy_(torch.tensor(checkpoint.facts["scales"]))
        self.optimiser.load(
            {
                name: like(tensor, self.parameters[name.rpartition(".")[0]]) if tensor.dim() else tensor.to(self.processes.device)
                for name, tensor in checkpoint.optimiser.items()
            }
        )
        self.best = checkpoint.facts["best"]
        return checkpoint.step

    def save(self, step: int) -> None:
        """A checkpoint; every process must call.

        Raises:
            StoreError: it cannot be written.
        """
        weights = self.weights()
        optimiser = {name: whole(tensor) for name, tensor in self.optimiser.state()}
        if self.processes.rank == 0:
            facts = {
                "plan": self.plan.model_dump(mode="json"),
                "data": self.data,
                "scales": self.scales.tolist(),
                "best": self.best,
            }
            write_checkpoint(self.folder, Checkpoint(step=step, weights=weights, optimiser=optimiser, facts=facts))
            remove_old(self.folder, self.plan.keep_checkpoints)
            # only now: a run killed before would go on from a checkpoint that names an earlier best
            for path in (self.folder / BEST).glob("*"):
                if self.best is not None and path != self.best_folder(self.best["step"]):
                    shutil.rmtree(path, ignore_errors=True)
        self.processes.wait()

    def keep_if_best(self, step: int, tensors: Mapping[str, Tensor], accept_length: AcceptLength | None) -> None:
        """On the first process alone. Where nothing is evaluated, the last weights are the best.

        Raises:
            StoreError: they cannot be written.
        """
        if self.best is None or accept_length is None or accept_length.mean > self.best["accept_length"]["mean"]:
            self.best = {"step": step, "accept_length": None if accept_length is None else asdict(accept_length)}
            write_folder(self.best_folder(step), {WEIGHTS: tensors, FACTS: self.best})

    def best_folder(self, step: int) -> Path:
        return self.folder / BEST / f"step-{step:08d}"
