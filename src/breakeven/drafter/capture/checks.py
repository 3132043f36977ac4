"""What must hold of captured states before anything trains on them.

A drafter trained on states that are shortened, shifted or broken trains to the end and then never gets a draft accepted. So: as
many rows as tokens, all numbers finite, and, for an audit, a few samples run again alone and compared. Shapes as in `states.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.samples import Sample
from breakeven.errors import DataError

__all__ = ["FiniteWatch", "check_same_states", "check_samples"]

# Of a row's length: rounding in another batch stays below these, a neighbour's state is about 1.4 away.
SAME_WITHIN = {torch.float32: 1e-3, torch.float64: 1e-3}
SAME_WITHIN_HALF = 0.25
# Where layers choose among experts, rounding may send a row to another expert now and then.
ROUTED_ROWS_ELSEWHERE = 0.1


def check_samples(samples: Sequence[Sample], vocab_size: int, max_positions: int) -> None:
    """
    Raises:
        DataError: a sample that the target cannot take whole; nothing is ever cut to fit.
    """
    for sample in samples:
        length = len(sample.token_ids)
        if not 0 < length <= max_positions:
            raise DataError(
                f"sample {sample.sample_id} has {length} tokens; the target's context holds 1 to {max_positions}: "
                "cut or drop it first"
            )
        if not 0 <= min(sample.token_ids) <= max(sample.token_ids) < vocab_size:
            raise DataError(
                f"sample {sample.sample_id} has token ids from {min(sample.token_ids)} to {max(sample.token_ids)}; the target "
                f"knows 0 to {vocab_size - 1}: was it tokenized for another model?"
            )


class FiniteWatch:
    """Looks for NaN and infinity; on a GPU the answer is fetched by `settle`, or when the next batch is watched."""

    def __init__(self, layers: Sequence[int]) -> None:
        self._names = [*(f"the stream entering layer {layer}" for layer in layers), "the state after the final norm"]
        self._waiting: tuple[Tensor, torch.cuda.Event | None, list[int], list[Sample]] | None = None

    def watch(self, states: PackedStates, samples: Sequence[Sample]) -> None:
        """
        Raises:
            DataError: this batch (on a CPU) or the one before (on a GPU) holds NaN or infinity; names sample, row and layer.
        """
        self.settle()
        num_rows, hidden = states.last.shape
        parts = [*states.auxiliary.view(num_rows, -1, hidden).unbind(1), states.last]
        first_bad = torch.stack([_first_bad_row(part) for part in parts])
        event = None
        if first_bad.is_cuda:
            first_bad = torch.empty(len(parts), dtype=torch.int64, pin_memory=True).copy_(first_bad, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._waiting = (first_bad, event, states.starts.tolist(), list(samples))
        if event is None:
            self.settle()

    def settle(self) -> None:
        """Judge the batch that is still waiting, if one is. Raises as `watch` does."""
        if self._waiting is None:
            return
        (first_bad, event, starts, samples), self._waiting = self._waiting, None
        if event is not None:
            event.synchronize()
        for name, row in zip(self._names, first_bad.tolist(), strict=True):
            if row >= 0:
                index = next(index for index, end in enumerate(starts[1:]) if row < end)
                sample = samples[index]
                raise DataError(
                    f"sample {sample.sample_id}, token {row - starts[index]} of {len(sample.token_ids)}: {name} holds NaN or "
                    "infinity; leave the sample out, or take a wider dtype (float16 overflows where bfloat16 does not)"
                )


def _first_bad_row(part: Tensor) -> Tensor:
    bad = ~torch.isfinite(part).all(-1)
    return torch.where(bad.any(), bad.int().argmax(), -1)


def check_same_states(sample: Sample, batched: tuple[Tensor, Tensor], alone: tuple[Tensor, Tensor], *, is_routed: bool) -> None:
    """Hold a sample's rows of a batch against the same sample run alone, (auxiliary, last) each.

    Raises:
        DataError: rows are missing or differ by more than rounding; names the sample and the first such row.
    """
    for name, mine, theirs in zip(("auxiliary states", "last states"), batched, alone, strict=True):
        if mine.shape != theirs.shape:
            raise DataError(f"sample {sample.sample_id}: {len(mine)} rows of {name} in a batch and {len(theirs)} alone")
        distance = (mine.float() - theirs.float()).norm(dim=-1) / theirs.float().norm(dim=-1).clamp(min=1e-12)
        differs = ~(distance <= SAME_WITHIN.get(mine.dtype, SAME_WITHIN_HALF))
        allowed = int(ROUTED_ROWS_ELSEWHERE * len(differs)) if is_routed else 0
        if int(differs.sum()) > allowed:
            row = int(differs.int().argmax())
            raise DataError(
                f"sample {sample.sample_id}: {int(differs.sum())} of {len(differs)} rows of {name} in a batch differ from the same "
                f"sample run alone, the first at token {row} by {float(distance[row]):.2g} of its length; states were shortened or "
                "shifted, by padding, truncation or a cache"
            )
