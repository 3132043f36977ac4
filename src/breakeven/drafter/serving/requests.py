"""What goes into the engine core and what comes out of it, one iteration at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from breakeven.acceptance import Acceptance

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
