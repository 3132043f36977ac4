"""Choosing tokens so that speculation changes nothing: greedy, or sampled from the target's own distribution.

Drafts here are certain proposals (the drafter names one token), so speculative sampling (Leviathan et al. 2023, arXiv 2211.17192)
reads: accept draft x with probability p(x); on rejection draw from p without x, renormalised. Either way the emitted token is
distributed as p. Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["NEAR_TIE", "Sampler", "greedy_choices", "greedy_verify"]

# Below this gap between the top two logits, float32 rounding may decide which token is greedy.
NEAR_TIE = 1e-4
NUCLEUS_GUESS = 512


def greedy_choices(logits: Tensor) -> tuple[list[int], list[bool]]:
    """The greedy token of each row of `logits` [R, V], and whether the choice was a near-tie."""
    top = logits.topk(2, dim=-1)
    return top.indices[:, 0].tolist(), ((top.values[:, 0] - top.values[:, 1]) < NEAR_TIE).tolist()


def greedy_verify(choices: Sequence[int], drafts: Sequence[int]) -> list[int]:
    """Drafts as long as they are what the target would have chosen, then the target's own choice (one more than drafts)."""
    num_accepted = 0
    while num_accepted < len(drafts) and drafts[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return [*drafts[:num_accepted], choices[num_accepted]]


@dataclass(slots=True)
class Sampler:
    """One request's random choices. Its generator is its own, so an answer does not depend on who shares the batch."""

    temperature: float
    top_p: float
    generator: np.random.Generator

    def probabilities(self, logits: Tensor) -> Tensor:
        """`logits` [V] -> probabilities [V] in float64 after temperature and nucleus (top_p) filtering."""
        probabilities = (logits.double() / self.temperature).softmax(-1)
        if self.top_p >= 1.0:
            return probabilities
        # The nucleus is nearly always within the first few hundred, and sorting a whole vocabulary takes milliseconds.
        ordered, order = probabilities.topk(min(NUCLEUS_GUESS, len(probabilities)))
        if ordered.sum() < self.top_p:
            ordered, order = probabilities.sort(descending=True)
        # a token stays if the mass before it is still below top_p, so the first always stays
        kept = ordered.masked_fill(ordered.cumsum(-1) - ordered >= self.top_p, 0.0)
        return torch.zeros_like(probabilities).scatter_(-1, order, kept / kept.sum())

    def draw(self, probabilities: Tensor) -> int:
        """One token from `probabilities` [V] by inversion."""
        cumulative = probabilities.cumsum(-1)
        point = self.generator.random() * float(cumulative[-1])
        return min(
            int(torch.searchsorted(cumulative, torch.tensor(point, dtype=cumulative.dtype), right=True)), len(cumulative) - 1
        )

    def verify(self, logits: Tensor, drafts: list[int]) -> list[int]:
        """Emitted tokens for one round: the accepted drafts and one more. `logits` [len(drafts) + 1, V].

        Rows after the first rejection are never turned into probabilities.
        """
        emitted: list[int] = []
        for draft, row in zip(drafts, logits, strict=False):
            probabilities = self.probabilities(row)
            if self.generator.random() >= float(probabilities[draft]):
                probabilities[draft] = 0.0
                return [*emitted, self.draw(probabilities)]
            emitted.append(draft)
        return [*emitted, self.draw(self.probabilities(logits[len(drafts)]))]
