"""A server with scripted streams, in the test's own event loop, and builders for samples."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from aiohttp import web

from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.samples import ClientHealth, LoadResult, Prompt, RequestSample


@dataclass
class Script:
    """How the server answers. `cut_after` tears the connection after so many chunks; `raw` replaces the whole body."""

    interval_s: float = 0.002
    first_s: float = 0.0
    tokens_per_chunk: int = 1
    usage: Literal["every", "end", "none"] = "every"
    status: int = 200
    refusal: str = '{"error": {"message": "out of order"}}'
    cut_after: int | None = None
    stop_after: int | None = None  # ends politely but early: no finish reason, no [DONE]
    raw: bytes | None = None
    pings: int = 0  # comments sent before anything else, `interval_s` apart
    text: str = "word{index} "
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ScriptedServer:
    endpoint: Endpoint
    script: Script
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    under_way: int = 0
    peak: int = 0
    num_aborted: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        assert request.transport is not None
        self.ports.append(request.transport.get_extra_info("peername")[1])
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            return await self._answer(request, self.bodies[-1])
        except (asyncio.CancelledError, ConnectionResetError):
            self.num_aborted += 1
            raise
        finally:
            self.under_way -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        script = self.script
        if script.status != 200:
            return web.Response(status=script.status, text=script.refusal)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"} | script.headers)
        await response.prepare(request)
        if script.raw is not None:
            await response.write(script.raw)
            return response
        for _ in range(script.pings):
            await response.write(b": ping\n\n")
            await asyncio.sleep(script.interval_s)
        await asyncio.sleep(script.first_s)
        await response.write(self._chunk({"role": "assistant", "content": ""}, 0))
        sent = 0
        for index, until in enumerate(range(0, body["max_tokens"], script.tokens_per_chunk)):
            if script.cut_after == index:
                assert request.transport is not None
                request.transport.abort()
                return response
            if script.stop_after == index:
                return response
            await asyncio.sleep(script.interval_s)
            sent = min(until + script.tokens_per_chunk, body["max_tokens"])
            await response.write(self._chunk({"content": script.text.format(index=index)}, sent))
        await response.write(self._chunk({}, sent, finish_reason="length"))
        if script.usage == "end":
            await response.write(self._event({"choices": [], "usage": _usage(sent)}))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _chunk(self, delta: dict[str, str], num_tokens: int, finish_reason: str | None = None) -> bytes:
        event: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
        if self.script.usage == "every":
            event["usage"] = _usage(num_tokens)
        return self._event(event)

    @staticmethod
    def _event(event: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps(event).encode() + b"\n\n"


def _usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 7, "completion_tokens": num_tokens, "total_tokens": 7 + num_tokens}


Serve = Callable[[Script], Awaitable[ScriptedServer]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(script: Script) -> ScriptedServer:
        app = web.Application()
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        server = ScriptedServer(Endpoint(url="http://127.0.0.1:1", model="scripted"), script)
        app.router.add_post("/v1/chat/completions", server.handle)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.endpoint = Endpoint(url=f"http://127.0.0.1:{runner.addresses[0][1]}", model="scripted")
        return server

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
def script() -> type[Script]:
    return Script


@pytest.fixture
def prompts() -> tuple[Prompt, ...]:
    return tuple(Prompt(id=f"p{index}", kind="chat", messages=(("user", f"question {index}"),)) for index in range(12))


@pytest.fixture
def sample() -> Callable[..., RequestSample]:
    """A request from 0 to 1 s with a token every 0.1 s, unless told otherwise."""

    def build(**changes: Any) -> RequestSample:
        arrivals = changes.get("arrivals", tuple((index / 10, index) for index in range(1, 11)))
        usual: dict[str, Any] = {
            "index": 0,
            "prompt_id": "p0",
            "kind": "chat",
            "scheduled_s": 0.0,
            "start_s": 0.0,
            "first_token_s": arrivals[0][0] if arrivals else None,
            "end_s": arrivals[-1][0] if arrivals else 1.0,
            "prompt_tokens": 7,
            "output_tokens": arrivals[-1][1] if arrivals else 0,
            "finish_reason": "length",
            "arrivals": arrivals,
        }
        return RequestSample(**(usual | changes))

    return build


@pytest.fixture
def window() -> Callable[..., LoadResult]:
    def build(window_s: float, *samples: RequestSample) -> LoadResult:
        health = ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.0)
        return LoadResult(window_s=window_s, samples=samples, health=health)

    return build
