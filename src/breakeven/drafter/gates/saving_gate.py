"""Gate: does what the trainer saves hold the head that it trained?"""

from __future__ import annotations

import torch

from breakeven.drafter.export.tensors import VOCABULARY_MAPS, checkpoint_tensors
from breakeven.drafter.gates.pipeline import Pipeline
from breakeven.drafter.gates.result import GateResult

__all__ = ["saving_gate"]

GATE = "saving"


def saving_gate(pipeline: Pipeline) -> GateResult:
    """Hold the tensors that a checkpoint gets against the weights that drafting uses, name by name."""
    expected = checkpoint_tensors(pipeline.config, pipeline.weights(), torch.float32)
    found = dict(pipeline.tensors())
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys() - set(VOCABULARY_MAPS))
    if missing or unknown:
        return _failed(
            f"{len(missing)} of {len(expected)} tensors are not saved under the names that engines read "
            f"(missing: {', '.join(missing[:3]) or 'none'}; unknown: {', '.join(unknown[:3]) or 'none'}): SGLang would leave them "
            "random without a word"
        )
    for name, tensor in expected.items():
        saved = found[name].detach().cpu()
        if saved.shape != tensor.shape or not torch.equal(saved.to(tensor.dtype), tensor):
            return _failed(f"{name} is saved as something else than what was trained")
    return GateResult(
        gate=GATE, outcome="passed", summary=f"all {len(expected)} tensors are saved under the names that engines read"
    )


def _failed(summary: str) -> GateResult:
    return GateResult(
        gate=GATE,
        outcome="failed",
        stage="saving",
        summary=summary,
        remedy="save the tensors that docs/export.md names, all of them",
    )
