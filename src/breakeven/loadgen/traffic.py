"""Requests kept under way: by slots (closed loop) or by due times (open loop)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from breakeven.loadgen.arrivals import poisson_times, staggered_tokens
from breakeven.loadgen.client import Answer, ChatClient, request_body
from breakeven.loadgen.samples import LoadPoint, Prompt

__all__ = ["Request", "Traffic"]

# After a failed request a slot waits, or a dead server would be asked thousands of times a second.
PAUSE_AFTER_ERROR_S = 0.25
MIN_TOKENS_OF_SPEED = 4


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request of a run; `scheduled_s` is when it was due, on the clock of `time.perf_counter`."""

    index: int
    prompt: Prompt
    scheduled_s: float
    staggered: bool
    answer: Answer = field(default_factory=Answer)

    @property
    def has_begun(self) -> bool:
        """The server has answered in some way: a first token, or the end."""
        return self.answer.stream.first_token_s is not None or self.answer.end_s is not None


class Traffic:
    """Sends from its creation until `stop`. `requests` holds everything sent, in order."""

    def __init__(self, client: ChatClient, point: LoadPoint, prompts: Iterator[Prompt], *, seed: int) -> None:
        self.requests: list[Request] = []
        self.under_way: set[Request] = set()
        self.num_errors = 0
        self._client = client
        self._point = point
        self._prompts = prompts
        self._num_tokens_ended = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._crash: BaseException | None = None
        self._draining = False
        if point.concurrency is not None:
            for slot in range(point.concurrency):
                self._spawn(self._keep_busy(slot, point.concurrency))
        else:
            assert point.rate_per_s is not None
            self._spawn(self._arrive(poisson_times(point.rate_per_s, seed)))

    @property
    def answers(self) -> list[Answer]:
        """To everything sent, in order."""
        return [request.answer for request in self.requests]

    @property
    def num_tokens(self) -> int:
        """Output tokens that have arrived so far."""
        return self._num_tokens_ended + sum(request.answer.stream.output_tokens for request in self.under_way)

    def speed(self, now_s: float) -> float | None:
        """Output tokens per second since the first token; None where that was too short ago to tell.

        First tokens are left out, as the time before them is: a long prompt says nothing about decoding.
        """
        firsts = [first_s for request in self.requests if (first_s := request.answer.stream.first_token_s) is not None]
        later = self.num_tokens - len(firsts)
        since_s = now_s - min(firsts, default=now_s)
        return later / since_s if later >= MIN_TOKENS_OF_SPEED and since_s > 0.0 else None

    def check(self) -> bool:
        """Whether every slot has had its first token, or an answer that ended; an open loop has no slots to wait for.

        Raises whatever a sending task died of: a fault of ours, since requests that fail are samples.
        """
        if self._crash is not None:
            raise self._crash
        num_slots = self._point.concurrency or 0
        return len(self.requests) >= num_slots and all(request.has_begun for request in self.requests[:num_slots])

    async def drain(self, until_s: float) -> None:
        """Send nothing new and let requests under way finish, until `until_s` at the latest."""
        self._draining = True
        while self.under_way and (left_s := until_s - time.perf_counter()) > 0:
            await asyncio.sleep(min(left_s, 0.02))

    async def stop(self) -> None:
        """Close every connection, so that the server aborts what is under way."""
        self._draining = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = error

    async def _keep_busy(self, slot: int, concurrency: int) -> None:
        due_s = time.perf_counter()
        first_tokens = staggered_tokens(slot, concurrency, self._point.max_tokens)
        request = await self._send(due_s, None if first_tokens == self._point.max_tokens else first_tokens)
        while not self._draining:
            due_s = time.perf_counter()
            if request.answer.error is not None:
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)
                due_s = time.perf_counter()
            request = await self._send(due_s)

    async def _arrive(self, due_times_s: Iterator[float]) -> None:
        begun_s = time.perf_counter()
        for due_s in due_times_s:
            while (left_s := begun_s + due_s - time.perf_counter()) > 0:
                await asyncio.sleep(left_s)
            if self._draining:
                return
            self._spawn(self._send_due(begun_s + due_s))

    async def _send_due(self, due_s: float) -> None:
        await self._send(due_s)

    async def _send(self, due_s: float, first_tokens: int | None = None) -> Request:
        request = Request(
            index=len(self.requests), prompt=next(self._prompts), scheduled_s=due_s, staggered=first_tokens is not None
        )
        self.requests.append(request)
        self.under_way.add(request)
        try:
            endpoint = self._client.endpoint
            body = request_body(
                endpoint.model, request.prompt, self._point, max_tokens=first_tokens, extra_fields=endpoint.extra_fields
            )
            await self._client.ask(body, request.answer)
        finally:
            self.under_way.discard(request)
            self._num_tokens_ended += request.answer.stream.output_tokens
            self.num_errors += request.answer.error is not None
        return request
