"""The engine's thread: it steps the core, and hands each step's tokens to asyncio in one call.

asyncio -> thread: a queue of submissions and aborts, emptied between steps. Thread -> asyncio: one `call_soon_threadsafe` a step,
however many requests and tokens the step served.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

from breakeven.drafter.serving.requests import CoreStats, GenerationRequest, TokenChunk
from breakeven.errors import BreakevenError, EngineDied

__all__ = ["Core", "EngineLoop", "RequestStream"]


class Core(Protocol):
    """What the loop needs of `EngineCore`; every method is called from the engine's thread only."""

    def submit(self, request: GenerationRequest) -> None: ...
    def abort(self, request_id: str) -> None: ...
    def step(self) -> list[TokenChunk]: ...
    @property
    def has_work(self) -> bool: ...
    @property
    def stats(self) -> CoreStats: ...


class RequestStream:
    """The chunks of one request, waiting for its handler. Belongs to the event loop's thread."""

    __slots__ = ("_chunks", "_failure", "_waiter")

    def __init__(self) -> None:
        self._chunks: list[TokenChunk] = []
        self._failure: BreakevenError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, chunk: TokenChunk) -> None:
        self._chunks.append(chunk)
        self._wake()

    def fail(self, error: BreakevenError) -> None:
        self._failure = error
        self._wake()

    async def get(self) -> list[TokenChunk]:
        """Every chunk that has arrived, at least one.

        Raises:
            BreakevenError: what `fail` was called with, once the chunks before it have been handed out.
        """
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        chunks, self._chunks = self._chunks, []
        return chunks

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EngineLoop:
    """Runs `core` in a thread of its own from `start` until `stop`, or until it raises: then `failure` says why, for good."""

    def __init__(self, core: Core, on_failure: Callable[[BaseException], None]) -> None:
        self._core = core
        self._on_failure = on_failure
        self._asyncio_loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[GenerationRequest | str | None] = queue.SimpleQueue()
        self._streams: dict[str, RequestStream] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.stats = core.stats
        self.failure: EngineDied | None = None

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: GenerationRequest) -> RequestStream:
        """Queue `request` for the core; its chunks arrive in the stream returned.

        Raises:
            EngineDied: the engine's thread has ended.
        """
        if self.failure is not None:
            raise self.failure
        stream = self._streams[request.request_id] = RequestStream()
        self._inbox.put(request)
        return stream

    def abort(self, request_id: str) -> None:
        """Free the request's slot. Does nothing for a request that has ended, so it is safe to call at every handler's end."""
        if self._streams.pop(request_id, None) is not None:
            self._inbox.put(request_id)

    def stop(self, reason: str) -> None:
        """Let the thread end after its step, and fail every open request with `reason`."""
        self._inbox.put(None)
        self._fail_all(EngineDied(reason))

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended within `timeout_s`."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self._take_orders():
                chunks = self._core.step()
                self.stats = self._core.stats  # before the chunks, so that a finished request is always in the counters
                if chunks:
                    self._call(self._deliver, chunks)
        except Exception as error:
            self._call(self._die, error)

    def _take_orders(self) -> bool:
        """Submit and abort what has been asked for, waiting for orders when there is nothing to do. False: stop."""
        while not self._inbox.empty() or not self._core.has_work:
            order = self._inbox.get()
            if order is None:
                return False
            if isinstance(order, str):
                self._core.abort(order)
            else:
                try:
                    self._core.submit(order)
                except BreakevenError as error:
                    self._call(self._refuse, order.request_id, error)
            self.stats = self._core.stats
        return True

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._asyncio_loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the event loop closed while this step ran: nobody is left to tell
            self._inbox.put(None)

    def _deliver(self, chunks: list[TokenChunk]) -> None:
        for chunk in chunks:
            # absent: the client went away and the abort is on its way to the core
            stream = self._streams.get(chunk.request_id)
            if stream is None:
                continue
            if chunk.finish_reason is not None:
                del self._streams[chunk.request_id]
            stream.put(chunk)

    def _refuse(self, request_id: str, error: BreakevenError) -> None:
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            stream.fail(error)

    def _die(self, error: Exception) -> None:
        self._fail_all(EngineDied(f"the engine failed ({type(error).__name__}: {error}): restart the server and see its log"))
        self._on_failure(error)

    def _fail_all(self, failure: EngineDied) -> None:
        self.failure = failure
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(failure)
