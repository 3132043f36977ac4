"""The way of one answer from the engine's chunks to the client, whole or as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from breakeven.drafter.serving.loop import EngineLoop, RequestStream
from breakeven.drafter.serving.metrics import Exposition
from breakeven.drafter.serving.openai import Reply, error_body
from breakeven.drafter.serving.requests import GenerationRequest, TokenChunk
from breakeven.drafter.serving.streaming import TextStream
from breakeven.errors import BreakevenError, EngineError

__all__ = ["AnswerOptions", "EngineResponse"]

EVENT_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """`usage_in_chunks` counts only together with `usage_at_end`, as in vLLM."""

    streamed: bool
    usage_at_end: bool = False
    usage_in_chunks: bool = False
    with_token_ids: bool = False


class _ClientGone(BreakevenError):
    """The client closed its connection before the answer was complete."""


class _Answer:
    """What one answer has come to so far."""

    def __init__(self, text_stream: TextStream) -> None:
        self._text_stream = text_stream
        self.num_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: str | None = None

    def take(self, chunks: Sequence[TokenChunk]) -> tuple[str, list[int]]:
        """New text and the tokens counted for it; sets `finish_reason` when this was the last of it."""
        text = ""
        token_ids: list[int] = []
        for chunk in chunks:
            # a stop token is counted, and its text is not shown
            shown = chunk.token_ids[:-1] if chunk.finish_reason == "stop" else chunk.token_ids
            delta = self._text_stream.push(shown, last=chunk.finish_reason is not None)
            text += delta.text
            if delta.stopped_by is not None:
                token_ids += chunk.token_ids[: delta.num_tokens]
                self.finish_reason, self.stop_reason = "stop", delta.stopped_by
                break
            token_ids += chunk.token_ids
            self.finish_reason = chunk.finish_reason
        self.num_tokens += len(token_ids)
        return text, token_ids


class EngineResponse(Response):
    """Submits `request` when it is called as an ASGI application. A client that goes away frees the request's slot."""

    def __init__(
        self,
        engine: EngineLoop,
        exposition: Exposition,
        request: GenerationRequest,
        text_stream: TextStream,
        reply: Reply,
        options: AnswerOptions,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._exposition = exposition
        self._request = request
        self._answer = _Answer(text_stream)
        self._reply = reply
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._engine.submit(self._request)
        watcher = asyncio.create_task(_watch(receive, stream))
        try:
            if self._options.streamed:
                await self._send_events(stream, send)
            else:
                await self._send_whole(stream, scope, receive, send)
        except _ClientGone:
            pass
        finally:
            watcher.cancel()
            if self._answer.finish_reason is None:
                self._exposition.finished["abort"] += 1
            self._engine.abort(self._request.request_id)

    async def _send_whole(self, stream: RequestStream, scope: Scope, receive: Receive, send: Send) -> None:
        text, token_ids = "", []
        while self._answer.finish_reason is None:
            new_text, new_ids = self._answer.take(await stream.get())
            text += new_text
            token_ids += new_ids
        self._count_finished()
        body = self._reply.whole(
            text,
            finish_reason=self._answer.finish_reason,
            stop_reason=self._answer.stop_reason,
            num_tokens=self._answer.num_tokens,
            prompt_ids=self._request.prompt_ids,
            token_ids=token_ids if self._options.with_token_ids else None,
        )
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _send_events(self, stream: RequestStream, send: Send) -> None:
        answer, options = self._answer, self._options
        usage_in_chunks = options.usage_at_end and options.usage_in_chunks
        # The status waits for the first tokens: what fails before them still gets an error status.
        chunks = await stream.get()
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})
        opening = self._reply.opening(with_usage=usage_in_chunks)
        try:
            while True:
                text, token_ids = answer.take(chunks)
                event = self._reply.delta(
                    text,
                    num_tokens=answer.num_tokens if usage_in_chunks else None,
                    finish_reason=answer.finish_reason,
                    stop_reason=answer.stop_reason,
                    token_ids=token_ids if options.with_token_ids else None,
                )
                if answer.finish_reason is not None:
                    break
                await send({"type": "http.response.body", "body": opening + event, "more_body": True})
                opening = b""
                chunks = await stream.get()
        except EngineError as failure:
            error = error_body(str(failure), 500, "InternalServerError")
            await send({"type": "http.response.body", "body": b"data: " + error + b"\n\ndata: [DONE]\n\n"})
            return
        self._count_finished()
        closing = self._reply.closing(num_tokens=answer.num_tokens if options.usage_at_end else None)
        await send({"type": "http.response.body", "body": opening + event + closing})

    def _count_finished(self) -> None:
        # before the last bytes leave, so that whoever has the whole answer finds it in the counters
        assert self._answer.finish_reason is not None
        self._exposition.finished[self._answer.finish_reason] += 1


async def _watch(receive: Receive, stream: RequestStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.fail(_ClientGone())
