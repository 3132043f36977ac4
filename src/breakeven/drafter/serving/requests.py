"""What goes into the engine core and what comes out of it, one iteration at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from breakeven.acceptance import Acceptance
from breakeven.errors import UsageError

__all__ = ["CoreStats", "FinishReason", "GenerationRequest", "TokenChunk"]

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """`stop_token_ids` end the answer, the model's end-of-sequence tokens too unless `ignore_eos`."""

    request_id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()

    def refuse_impossible(self, *, context_length: int, vocab_size: int) -> None:
        """Raises UsageError: no prompt, no room for an answer, a token outside the vocabulary, a sampling option out of range."""
        if not 1 <= len(self.prompt_ids) < context_length:
            raise UsageError(f"prompt of {len(self.prompt_ids)} tokens; expected 1 to {context_length - 1}")
        if not all(0 <= token < vocab_size for token in self.prompt_ids):
            raise UsageError(f"the prompt holds a token id outside the vocabulary of {vocab_size}")
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}; expected at least 1")
        if not 0.0 <= self.temperature < math.inf:
            raise UsageError(f"temperature is {self.temperature}; expected 0 (greedy) or more")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p is {self.top_p}; expected above 0 and at most 1")
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"seed is {self.seed}; expected 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChunk:
    """The tokens one iteration gave one request: 1 to k+1 of them. A stop token that ended it is the last of them: it was
    generated, so it counts, as in vLLM; its text is not shown.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreStats:
    """Counters since start. `near_ties` counts greedy choices whose top two logits were closer than 1e-4, where float32 rounding
    (and so the batch a token was computed in) can decide.
    """

    num_running: int
    num_waiting: int
    prompt_tokens: int
    generation_tokens: int
    num_requests: int
    near_ties: int
    acceptance: Acceptance
