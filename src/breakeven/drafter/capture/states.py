"""What training sees of the target: its states at every token of a batch of samples, laid end to end.

Shapes: N tokens of all samples in order, H hidden, S samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["PackedStates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedStates:
    """No padding: sample s holds rows `starts[s]` to `starts[s + 1]`, and its positions begin at 0."""

    token_ids: Tensor  # [N] int64
    positions: Tensor  # [N] int64, the target's own
    samples: Tensor  # [N] int32, which sample a row belongs to: attention never crosses it
    starts: Tensor  # [S + 1] int64
    loss_mask: Tensor  # [N] bool, tokens the target wrote (not shifted)
    auxiliary: Tensor  # [N, 3H] the residual streams entering the three chosen layers, low to high
    last: Tensor  # [N, H] after the target's final norm: `last @ head.T` are its logits

    def __post_init__(self) -> None:
        num_tokens = len(self.token_ids)
        for name in ("positions", "samples", "loss_mask", "auxiliary", "last"):
            assert len(getattr(self, name)) == num_tokens, (name, len(getattr(self, name)), num_tokens)
        assert int(self.starts[-1]) == num_tokens
