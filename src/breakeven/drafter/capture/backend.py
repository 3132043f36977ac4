"""What captures need of a target, whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Backend"]


class Backend(Protocol):
    """A target in memory. `architecture` is its name in messages; `is_routed` says that its layers choose among experts."""

    architecture: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    max_positions: int
    is_routed: bool
    dtype: torch.dtype
    device: torch.device

    @property
    def embed_weight(self) -> Tensor:
        """[V, H]"""

    @property
    def head_weight(self) -> Tensor:
        """[V, H]: logits are `last @ head_weight.T`."""

    def states(self, token_ids: Tensor, starts: Sequence[int], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The residual streams entering `layers` [N, len(layers) * H], and the states after the final norm [N, H].

        `token_ids` [N] are samples laid end to end, sample s from `starts[s]` to `starts[s + 1]`, each seen from position 0 on and
        by itself.
        """
