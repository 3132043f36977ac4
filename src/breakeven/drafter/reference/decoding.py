"""Decoding, plainly: greedy, speculative greedy, and the sampling rule of speculative decoding.

Accepted tokens are counted as vLLM counts them: all that a round accepts, also those past the end of the answer. The first token
comes from the prompt's own forward pass, which is no step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.reference.llama import llama

__all__ = ["greedy", "speculative_greedy", "speculative_sampling"]

# (all tokens so far, residual streams entering each layer [T, H] for all but the newest) -> drafts
Propose = Callable[[list[int], list[Tensor]], list[int]]


def greedy(prompt_ids: list[int], num_tokens: int, config: LlamaConfig, weights: LlamaWeights) -> list[int]:
    """The `num_tokens` most likely next tokens, one forward pass of everything for each."""
    tokens = list(prompt_ids)
    for _ in range(num_tokens):
        logits, _ = llama(torch.tensor(tokens), config, weights)
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt_ids) :]


def speculative_greedy(
    prompt_ids: list[int], num_tokens: int, propose: Propose, config: LlamaConfig, weights: LlamaWeights
) -> tuple[list[int], list[int]]:
    """The same tokens as `greedy`, and how many drafts each round accepted."""
    logits, streams = llama(torch.tensor(prompt_ids), config, weights)
    tokens = [*prompt_ids, int(logits[-1].argmax())]
    accepted_by_round = []
    while len(tokens) < len(prompt_ids) + num_tokens:
        settled = len(tokens) - 1
        drafts = propose(tokens, [stream[:settled] for stream in streams])
        logits, streams = llama(torch.tensor(tokens + drafts), config, weights)
        choices = logits[settled:].argmax(-1).tolist()
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == choices[accepted]:
            accepted += 1
        tokens += choices[: accepted + 1]
        accepted_by_round.append(accepted)
    return tokens[len(prompt_ids) : len(prompt_ids) + num_tokens], accepted_by_round


def speculative_sampling(
    target: NDArray[np.float64], proposal: NDArray[np.float64], drafts: list[int], generator: np.random.Generator
) -> list[int]:
    """The tokens one round emits, each distributed as the target's: accepted drafts and one more (arXiv 2211.17192, algorithm 1).

    `target` [k + 1, V] and `proposal` [k, V] are probabilities; `drafts` were drawn from the rows of `proposal`.
    """
    emitted: list[int] = []
    for draft, p, q in zip(drafts, target, proposal, strict=False):
        if generator.random() * q[draft] >= p[draft]:
            residual = np.maximum(p - q, 0.0)
            return [*emitted, int(generator.choice(len(p), p=residual / residual.sum()))]
        emitted.append(draft)
    return [*emitted, int(generator.choice(target.shape[1], p=target[len(drafts)]))]
