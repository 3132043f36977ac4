"""Gate: are the captured states those that the head's configuration names, in that order, at every token?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.preparing import TargetCapture
from breakeven.drafter.gates.result import GateResult
from breakeven.drafter.gates.truth import TargetTruth

__all__ = ["capture_gate"]

GATE = "capture"
# Relative distance of a state from transformers' own, in the median over rows: rounding in bfloat16 through all layers stays below,
# the state entering a neighbouring layer is further away.
SAME_WITHIN = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.02}


def capture_gate(
    samples: Sequence[Sample], capture: TargetCapture, auxiliary_layers: Sequence[int], truth: TargetTruth
) -> GateResult:
    """Hold the trainer's states of `samples` against transformers'.

    auxiliary_layers: layer inputs, as the head's folder will name them.
    """
    packed = capture.capture(samples)
    starts = packed.starts.tolist()
    limit = SAME_WITHIN.get(packed.auxiliary.dtype, 1e-3)
    worst = 0.0
    for sample, start, end in zip(samples, starts[:-1], starts[1:], strict=True):
        if packed.token_ids[start:end].tolist() != list(sample.token_ids):
            return _failed(
                f"sample {sample.sample_id} has {len(sample.token_ids)} tokens and its states are of other ones or of another "
                f"number ({end - start}): cut, padded or shifted",
                "give every sample to the target whole, alone in its attention, with no prefix cache",
            )
        streams, logits = truth.states(sample.token_ids)
        thirds = packed.auxiliary[start:end].float().cpu().chunk(3, dim=-1)
        distances = [[_distance(third, stream) for stream in streams] for third in thirds]
        nearest = [row.index(min(row)) for row in distances]
        if tuple(nearest) != tuple(auxiliary_layers):
            return _named(sample, nearest, auxiliary_layers)
        worst = max([worst, *(row[layer] for row, layer in zip(distances, nearest, strict=True))])
        last = packed.last[start:end].float().cpu() @ truth.head_weight.T
        worst = max(worst, _distance(last, logits))
        if worst > limit:
            return _failed(
                f"sample {sample.sample_id}: states differ from transformers' by {worst:.2g} of their length; expected at "
                f"most {limit} in {str(packed.auxiliary.dtype).removeprefix('torch.')}",
                "look for another revision, quantization or rotary scaling of the target, and at the state after the final norm",
            )
    return GateResult(
        gate=GATE,
        outcome="passed",
        summary=f"states of {len(samples)} samples are transformers' own entering layers {_listed(auxiliary_layers)}",
        figures={"worst_distance": worst, "num_samples": len(samples)},
    )


def _distance(mine: Tensor, theirs: Tensor) -> float:
    """Median over rows: the first position is an outlier of hundreds in many models."""
    return float(((mine - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp(min=1e-12)).median())


def _named(sample: Sample, found: Sequence[int], expected: Sequence[int]) -> GateResult:
    if sorted(found) == sorted(expected):
        what = "they are in another order (low and high swapped)"
    elif len({mine - theirs for mine, theirs in zip(found, expected, strict=True)}) == 1:
        what = f"layer ids are off by {abs(found[0] - expected[0])}: layer outputs taken for layer inputs, or the reverse"
    else:
        what = "these are other layers"
    return _failed(
        f"sample {sample.sample_id}: the three states are nearest to those entering layers {_listed(found)}, the head names "
        f"{_listed(expected)}: {what}",
        "capture the residual streams that enter the layers named, low to high",
    )


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))


def _failed(summary: str, remedy: str) -> GateResult:
    return GateResult(gate=GATE, outcome="failed", stage="capture", summary=summary, remedy=remedy)
