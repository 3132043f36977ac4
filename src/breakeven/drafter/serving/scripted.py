"""A core with declared answers and step time in place of a model: the server is tested, and its own cost measured, against it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from breakeven.acceptance import Acceptance
from breakeven.drafter.serving.requests import CoreStats, FinishReason, GenerationRequest, TokenChunk

__all__ = ["ScriptedCore"]


class ScriptedCore:
    """Answers each request with `script(request)`, `tokens_per_step` at a time: as if that many less one had been drafted and
    every draft accepted. A script that runs out starts again.

    fail_at_step: raise in that step, counted from 0, as a model with a bug would.
    """

    def __init__(
        self,
        script: Callable[[GenerationRequest], Sequence[int]],
        *,
        tokens_per_step: int = 1,
        max_num_seqs: int = 8,
        step_s: float = 0.0,
        fail_at_step: int | None = None,
    ) -> None:
        self._script = script
        self._tokens_per_step = tokens_per_step
        self._max_num_seqs = max_num_seqs
        self._step_s = step_s
        self._fail_at_step = fail_at_step
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[str, tuple[GenerationRequest, int]] = {}
        self._num_steps = self._prompt_tokens = self._generation_tokens = self._num_requests = self._rounds = 0

    def submit(self, request: GenerationRequest) -> None:
        self._waiting.append(request)

    def abort(self, request_id: str) -> None:
        self._running.pop(request_id, None)
        self._waiting = deque(request for request in self._waiting if request.request_id != request_id)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    def step(self) -> list[TokenChunk]:
        """One round of every running request, after admitting what there is room for."""
        if self._num_steps == self._fail_at_step:
            raise RuntimeError("scripted failure")
        self._num_steps += 1
        while self._waiting and len(self._running) < self._max_num_seqs:
            request = self._waiting.popleft()
            self._running[request.request_id] = (request, 0)
            self._num_requests += 1
            self._prompt_tokens += len(request.prompt_ids)
        if self._step_s:
            time.sleep(self._step_s)
        return [self._advance(request, done) for request, done in list(self._running.values())]

    def _advance(self, request: GenerationRequest, done: int) -> TokenChunk:
        script = self._script(request)
        end = min(done + self._tokens_per_step, request.max_tokens)
        token_ids = [script[index % len(script)] for index in range(done, end)]
        finish: FinishReason | None = "length" if end == request.max_tokens else None
        for index, token in enumerate(token_ids):
            if token in request.stop_token_ids:
                token_ids, finish = token_ids[: index + 1], "stop"
                break
        self._rounds += 1
        self._generation_tokens += len(token_ids)
        if finish:
            del self._running[request.request_id]
        else:
            self._running[request.request_id] = (request, end)
        return TokenChunk(request_id=request.request_id, token_ids=tuple(token_ids), finish_reason=finish)

    @property
    def stats(self) -> CoreStats:
        drafts = self._tokens_per_step - 1
        rounds = self._rounds if drafts else 0
        return CoreStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            num_requests=self._num_requests,
            near_ties=0,
            acceptance=Acceptance(
                num_steps=self._rounds,
                num_rounds=rounds,
                num_drafted=rounds * drafts,
                num_accepted=rounds * drafts,
                accepted_per_position=(rounds,) * drafts,
            ),
        )
