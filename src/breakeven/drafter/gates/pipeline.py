"""A trainer as the gates see it: five things it can do, each of which may be wrong on its own.

The gates compare every one of them with something that shares no code with it: the tokenizer and the forward pass of transformers,
the plain decoder of `drafter/reference`, and an engine.

Shapes: K steps of the training-time test, V target vocabulary, W draft vocabulary, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.preparing import TargetCapture
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights

__all__ = ["Conversation", "Depths", "Pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A training sample with the messages it was rendered from; the last is the assistant's."""

    messages: tuple[Mapping[str, Any], ...]
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Depths:
    """What the trainer says of one packed batch, by step of the training-time test [K].

    losses: mean over rows that have a loss (NaN without any). num_trained: how many have. num_correct, num_counted: accuracy.
    num_chains, num_chains_correct: starts whose guesses up to this step all count, and of which all are right.
    """

    losses: tuple[float, ...]
    num_trained: tuple[int, ...]
    num_correct: tuple[int, ...]
    num_counted: tuple[int, ...]
    num_chains: tuple[int, ...]
    num_chains_correct: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """`module` is the head under training; everything looks at its present weights.

    target_embed: [V, H], on the module's device. weights: the module as drafting sees it, float32. depths: the trainer's own
    objective. fit: train on samples for so many steps, from where the module is. tensors: what a checkpoint of it holds.
    tolerance: largest relative departure of a loss, 1e-3 for a float32 objective.
    """

    module: nn.Module
    config: Eagle3Config
    capture: TargetCapture
    target_embed: Tensor
    weights: Callable[[], Eagle3Weights]
    depths: Callable[[PackedStates], Depths]
    fit: Callable[[Sequence[Sample], int], None]
    tensors: Callable[[], Mapping[str, Tensor]]
    tolerance: float = 1e-3
