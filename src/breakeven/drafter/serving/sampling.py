"""Choosing tokens so that speculation changes nothing: greedy, or sampled from the target's own distribution.

Drafts here are certain proposals (the drafter names one token), so speculative sampling (Leviathan et al. 2023, arXiv 2211.17192)
reads: accept draft x with probability p(x); on rejection draw from p without x, renormalised. Either way the emitted token is
distributed as p. Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["NEAR_TIE", "Sampler", "greedy_choices"]

# Below this gap between the top two logits, float32 rounding may decide which token is greedy.
NEAR_TIE = 1e-4


def greedy_choices(logits: Tensor) -> tuple[list[int], list[bool]]:
    """The greedy token of each row of `logits` [R, V], and whether the choice was a near-tie."""
    top = logits.topk(2, dim=-1)
    return top.indices[:, 0].tolist(), ((top.values[:, 0] - top.values[:, 1]) < NEAR_TIE).tolist()


@dataclass(slots=True)
class Sampler:
    """One request's random choices. Its generator is its own, so an answer does not depend on who shares the batch."""

    temperature: float
    top_p: float
    generator: np.random.Generator

    def probabilities(self, logits: Tensor) -> Tensor:
        """`logits` [R, V] -> probabilities [R, V] in float64 after temperature and nucleus (top_p) filtering."""
        probabilities = (logits.double() / self.temperature).softmax(-1)
        if self.top_p < 1.0:
            ordered, order = probabilities.sort(dim=-1, descending=True)
            # a token stays if the mass before it is still below top_p, so the first always stays
            outside = ordered.cumsum(-1) - ordered >= self.top_p
            probabilities = probabilities.scatter(-1, order, ordered.masked_fill(outside, 0.0))
            probabilities /= probabilities.sum(-1, keepdim=True)
        return probabilities

    def draw(self, probabilities: Tensor) -> int:
        """One token from `probabilities` [V] by inversion."""
        cumulative = probabilities.cumsum(-1)
        point = self.generator.random() * float(cumulative[-1])
        return min(
            int(torch.searchsorted(cumulative, torch.tensor(point, dtype=cumulative.dtype), right=True)), len(cumulative) - 1
        )

    def verify(self, logits: Tensor, drafts: list[int]) -> list[int]:
        """Emitted tokens for one round: the accepted drafts and one more. `logits` [len(drafts) + 1, V]."""
        probabilities = self.probabilities(logits)
        emitted = []
        for row, draft in enumerate(drafts):
            if self.generator.random() < float(probabilities[row, draft]):
                emitted.append(draft)
                continue
            without = probabilities[row].clone()
            without[draft] = 0.0
            return [*emitted, self.draw(without)]
        return [*emitted, self.draw(probabilities[len(drafts)])]
