"""AdamW for everything, or Muon for the layer's matrices with AdamW for head and norms (as speculators trains)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from breakeven.drafter.training.plan_schema import OptimiserPlan

__all__ = ["Optimiser"]


class Optimiser:
    """One or two torch optimisers behind one step, whose state is a flat table of named tensors."""

    def __init__(self, parameters: dict[str, nn.Parameter], plan: OptimiserPlan) -> None:
        """`parameters` by name; a name that ends in `head` is the vocabulary's matrix."""
        matrices = {name for name, weight in parameters.items() if weight.dim() == 2 and not name.endswith("fc_norm")}
        by_muon = {name for name in matrices if not name.endswith("head")} if plan.kind == "muon" else set()
        self._names = {id(weight): name for name, weight in parameters.items()}
        self._parameters = parameters
        fused = next(iter(parameters.values())).device.type == "cuda"
        groups = [
            {
                "params": [weight for name, weight in parameters.items() if name in chosen - by_muon],
                "weight_decay": decay,
            }
            for chosen, decay in ((matrices, plan.weight_decay), (parameters.keys() - matrices, 0.0))
        ]
        adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=plan.learning_rate, betas=plan.betas, eps=1e-8, fused=fused
        )
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [(adamw, plan.learning_rate)]
        if by_muon:
            muon = torch.optim.Muon(
                [parameters[name] for name in sorted(by_muon)],
                lr=plan.muon_learning_rate,
                momentum=plan.muon_momentum,
                weight_decay=plan.weight_decay,
                # one rate then means the same size of update as AdamW's
                adjust_lr_fn="match_rms_adamw",
            )
            self._parts.append((muon, plan.muon_learning_rate))

    def step(self, rate_share: float) -> None:
        """One update at `rate_share` of the peak rates; gradients are forgotten."""
        for part, peak in self._parts:
            for group in part.param_groups:
                group["lr"] = peak * rate_share
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """`PARAMETER.FIELD` and its tensor; sharded ones stay sharded."""
        for part, _ in self._parts:
            for weight, fields in part.state.items():
                for field, value in fields.items():
                    if isinstance(value, Tensor):
                        yield f"{self._names[id(weight)]}.{field}", value

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state that `state` gave (tensors as whole, or sharded like the weights)."""
        for part, _ in self._parts:
            for group in part.param_groups:
                for weight in group["params"]:
                    prefix = self._names[id(weight)] + "."
                    fields: dict[str, Any] = {
                        name.removeprefix(prefix): value
                        for name, value in tensors.items()
                        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
                    }
                    part.state[weight] = fields
