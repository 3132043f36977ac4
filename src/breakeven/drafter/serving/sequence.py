"""A request that runs: its tokens, the slot that its keys and values lie in, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from breakeven.drafter.serving.layers import Span
from breakeven.drafter.serving.requests import FinishReason, GenerationRequest
from breakeven.drafter.serving.sampling import Sampler

__all__ = ["RunningSequence"]


@dataclass(slots=True, eq=False)
class RunningSequence:
    """`sampler` None where the request is greedy."""

    request: GenerationRequest
    slot: int
    tokens: list[int]
    sampler: Sampler | None
    stop_ids: frozenset[int]
    # Rows the target has run since the drafter last looked, and their auxiliary states.
    settled: Span
    states: Tensor | None = None
    num_generated: int = 0

    def append(self, emitted: list[int], context_length: int) -> tuple[list[int], FinishReason | None]:
        """Take on a round's tokens: those up to the request's end, and why it ended, if it did."""
        room = min(self.request.max_tokens - self.num_generated, context_length - len(self.tokens))
        finish: FinishReason | None = None
        if len(emitted) >= room:
            emitted, finish = emitted[:room], "length"
        for index, token in enumerate(emitted):
            if token in self.stop_ids:
                emitted, finish = emitted[: index + 1], "stop"
                break
        self.tokens.extend(emitted)
        self.num_generated += len(emitted)
        return emitted, finish
