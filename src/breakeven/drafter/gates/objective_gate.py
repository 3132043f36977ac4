"""Gate: does the trainer compute what drafting computes, and judge it where the target wrote?

One token of one sample is marked at a time, so the trainer's loss at every step is that of one row, which the plain decoder can
compute on its own. Where they differ, the known faults are tried one after another: the one that explains the figures is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.gates.oracle import KNOWN_FAULTS, Hypothesis, judge_row, without_weight
from breakeven.drafter.gates.pipeline import Depths, Pipeline
from breakeven.drafter.gates.result import GateResult, Stage
from breakeven.drafter.gates.truth import TargetTruth
from breakeven.drafter.model.eagle3 import Eagle3Weights

__all__ = ["objective_gate"]

GATE = "objective"
NUM_PROBES = 3
NUM_STATES = 3  # auxiliary states, each with a norm of its own in EAGLE-3.1
# A fresh head has norms of one and a layer that adds next to nothing, so that many faults change nothing yet: it is shaken until
# every matrix passes on as much as it gets, and put back.
NORM_SHAKE = 0.3
NORMS = ("hidden_norm", "embed_norm", "post_norm", "norm")


@dataclass(frozen=True, slots=True)
class _Place:
    """The row that a marked token `marked` should be judged at: step k of the drafting that starts at `marked` - 2 - k."""

    marked: int
    step: int

    @property
    def start(self) -> int:
        return self.marked - 2 - self.step


def objective_gate(samples: Sequence[Sample], pipeline: Pipeline, truth: TargetTruth, *, seed: int = 0) -> GateResult:
    """Losses and guesses of the trainer's objective against the plain decoder's, token by marked token.

    The module is shaken so that nothing is at its neutral start; its weights are as before when this returns.
    """
    before = {name: parameter.detach().clone() for name, parameter in pipeline.module.named_parameters()}
    try:
        _shake(pipeline, seed)
        return _compared(samples, pipeline, truth)
    finally:
        with torch.no_grad():
            for name, parameter in pipeline.module.named_parameters():
                parameter.copy_(before[name])


@torch.no_grad()
def _shake(pipeline: Pipeline, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in pipeline.module.parameters():
        draws = torch.randn(parameter.shape, generator=generator).to(parameter.device)
        is_matrix = parameter.dim() > 1 and len(parameter) > NUM_STATES
        parameter.add_(draws * (parameter.shape[-1] ** -0.5 if is_matrix else NORM_SHAKE))


def _compared(samples: Sequence[Sample], pipeline: Pipeline, truth: TargetTruth) -> GateResult:
    weights = pipeline.weights().to(torch.device("cpu"))
    worst = 0.0
    num_compared = 0
    embed = pipeline.target_embed.detach().float().cpu()
    if not torch.allclose(embed, truth.embed_weight, rtol=0.02, atol=1e-3 * float(truth.embed_weight.std())):
        return _failed(
            "model", "the head's embedding is not the target's", "use the target's embedding; engines do, whatever is trained"
        )
    for sample in samples:
        packed = pipeline.capture.capture([sample])
        # the capture was judged by its own gate; from the same states, in float32, the numbers must be the same
        head = truth.head_weight.to(packed.last.dtype).float()
        logits = packed.last.float().cpu() @ head.T
        oracle = _Oracle(sample, packed.auxiliary.float().cpu(), logits, pipeline, embed)
        for marked in _probes(sample, weights):
            depths = pipeline.depths(_marked(packed, marked))
            for step in range(len(depths.losses)):
                place = _Place(marked, step)
                if place.start < 0:
                    continue
                expected = oracle.loss(place, weights)
                if depths.num_trained[step] != 1:
                    return _miscounted(sample, place, depths)
                departure = abs(depths.losses[step] - expected) / max(abs(expected), 1e-6)
                if not departure <= pipeline.tolerance:
                    return _explained(oracle, place, depths, expected, weights, pipeline.tolerance)
                if oracle.correct(place, weights) != bool(depths.num_correct[step]) and pipeline.tolerance <= 1e-3:
                    return _failed(
                        "objective",
                        f"sample {sample.sample_id}, token {marked}, step {step}: the loss is right and the guess is judged "
                        f"{'right' if depths.num_correct[step] else 'wrong'}, which it is not: accuracy is counted otherwise",
                        "compare the head's arg max with the target's over the draft vocabulary",
                    )
                worst = max(worst, departure)
                num_compared += 1
    if not num_compared:
        return GateResult(
            gate=GATE,
            outcome="undecided",
            stage="objective",
            summary="no answer token of these samples is in the draft vocabulary, so no loss could be compared",
            remedy="choose the draft vocabulary from the training answers",
        )
    return GateResult(
        gate=GATE,
        outcome="passed",
        summary=f"{num_compared} losses of single rows are those of the plain decoder, within {worst:.1e}",
        figures={"num_compared": num_compared, "worst_departure": worst},
    )


class _Oracle:
    def __init__(self, sample: Sample, auxiliary: Tensor, logits: Tensor, pipeline: Pipeline, embed: Tensor) -> None:
        self.sample = sample
        self._rest = (torch.tensor(sample.token_ids), auxiliary, logits, pipeline.config)
        self._embed = embed

    def loss(self, place: _Place, weights: Eagle3Weights, hypothesis: Hypothesis = Hypothesis(), shift: int = 0) -> float:  # noqa: B008
        start = place.start + shift
        if start < 0 or start + 1 + place.step >= len(self.sample.token_ids):
            return math.nan
        return judge_row(start, place.step, *self._rest, weights, self._embed, hypothesis).loss

    def correct(self, place: _Place, weights: Eagle3Weights) -> bool:
        return judge_row(place.start, place.step, *self._rest, weights, self._embed).correct


def _probes(sample: Sample, weights: Eagle3Weights) -> list[int]:
    """A few answer tokens of the draft vocabulary, spread over the answer, the first ones included: there shifts show."""
    known = set(weights.target_ids.tolist())
    places = [index for index, mark in enumerate(sample.loss_mask) if mark and index >= 2 and sample.token_ids[index] in known]
    if len(places) <= NUM_PROBES:
        return places
    return [places[round(part * (len(places) - 1) / (NUM_PROBES - 1))] for part in range(NUM_PROBES)]


def _marked(packed: PackedStates, token: int) -> PackedStates:
    mask = torch.zeros_like(packed.loss_mask)
    mask[token] = True
    return replace(packed, loss_mask=mask)


def _miscounted(sample: Sample, place: _Place, depths: Depths) -> GateResult:
    return _failed(
        "objective",
        f"sample {sample.sample_id}: token {place.marked} alone is marked, and {depths.num_trained[place.step]} rows have a "
        f"loss at step {place.step}; expected 1: the mask is shifted past the end, or the draft vocabulary that decides which "
        "tokens count is another one (absolute d2t)",
        "at step k, row t is judged where token t + 2 + k is marked and in the draft vocabulary",
    )


def _explained(
    oracle: _Oracle, place: _Place, depths: Depths, expected: float, weights: Eagle3Weights, tolerance: float
) -> GateResult:
    found = depths.losses[place.step]

    def fits(loss: float) -> bool:
        return abs(found - loss) <= tolerance * max(abs(loss), 1e-6)

    where = (
        f"sample {oracle.sample.sample_id}, token {place.marked}, step {place.step}: the trainer's loss is {found:.4f}, the plain "
        f"decoder's {expected:.4f}"
    )
    for shift in (2, 1, 2 + place.step, 1 + place.step, -1):
        if shift and fits(oracle.loss(place, weights, shift=shift)):
            return _failed(
                "objective",
                f"{where}. The loss is that of row {place.start + shift}: the mask is not shifted with the tokens (by {shift})",
                "at step k, row t guesses token t + 2 + k, so it counts where that token is marked",
            )
    for name, stage, hypothesis in KNOWN_FAULTS:
        if fits(oracle.loss(place, weights, hypothesis)):
            return _failed(stage, f"{where}, which it would be if {name}", "correct the trainer's forward pass or vocabulary map")
    for norm in NORMS:
        if fits(oracle.loss(place, without_weight(weights, norm))):
            return _failed(
                "model", f"{where}, which it would be if the weight of {norm} were not used", "apply every norm's weight"
            )
    return _failed(
        "model",
        f"{where}; none of the known faults explains it, so the forward pass or the loss differs in another way",
        "compare the head's logits at one row with drafter/reference, step by step",
    )


def _failed(stage: Stage | str, summary: str, remedy: str) -> GateResult:
    return GateResult.model_validate({"gate": GATE, "outcome": "failed", "stage": stage, "summary": summary, "remedy": remedy})
