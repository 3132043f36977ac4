"""Sums over the steps since the last line of the log. They lie on the device, so that no step waits for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.training.processes import Processes
from breakeven.drafter.training.rows import JudgedRows
from breakeven.errors import BreakevenError

__all__ = ["Window"]


class Window:
    def __init__(self, num_steps: int, processes: Processes) -> None:
        """num_steps: of the training-time test."""
        self.num_tokens = 0
        self._processes = processes
        self._sums = torch.zeros(3, num_steps, dtype=torch.float64, device=processes.device)  # losses, correct, joint
        self._counts = np.zeros((3, num_steps), dtype=np.int64)  # trained, counted, chains
        self._norm = torch.zeros((), dtype=torch.float64, device=processes.device)
        self._num_norms = 0

    def add_batch(self, judged: JudgedRows, losses: Tensor, correct: Tensor, joint: Tensor) -> None:
        """Sums by step [steps] over the batch's judged rows."""
        self._sums += torch.stack([losses.double(), correct.double(), joint.double()])
        self._counts += np.stack([judged.num_trained, judged.num_counted, judged.num_chains])

    def add_step(self, num_tokens: int, gradient_norm: Tensor) -> None:
        self.num_tokens += num_tokens
        self._norm += gradient_norm.full_tensor() if hasattr(gradient_norm, "full_tensor") else gradient_norm
        self._num_norms += 1

    def means(self, step_weights: NDArray[np.float64], step: int) -> dict[str, Any]:
        """Over all processes, each of which must ask; waits for the device. `step` is the last one done.

        Raises:
            BreakevenError: the loss or its gradient is no longer a number.
        """
        sums = self._processes.add_up(self._sums).cpu().numpy()
        counts = self._processes.add_up(torch.from_numpy(self._counts).to(self._processes.device)).cpu().numpy()
        losses, accuracy, joint = (part / np.maximum(count, 1) for part, count in zip(sums, counts, strict=True))
        norm = float(self._norm) / self._num_norms
        if not (np.isfinite(losses).all() and np.isfinite(norm)):
            raise BreakevenError(
                f"the loss or its gradient is no longer a number within the steps up to {step} (losses by step "
                f"{[round(float(loss), 3) for loss in losses]}, gradient norm {norm}); the last checkpoint is from before. "
                "Lower optimiser.learning_rate, or look for NaN in the target's states (precision: float32 tells)"
            )
        return {
            "loss": float((losses * step_weights).sum()),
            "losses": losses.tolist(),
            "accuracy": accuracy.tolist(),
            "joint_accuracy": joint.tolist(),
            "coverage": float(counts[0, 0] / max(counts[1, 0], 1)),
            "gradient_norm": norm,
        }
