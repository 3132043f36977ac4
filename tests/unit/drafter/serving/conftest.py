"""A tokenizer whose ids are bytes, and the real HTTP application over a scripted core."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import orjson
import pytest
import uvicorn
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from breakeven.drafter.serving.app import Application, Service
from breakeven.drafter.serving.loop import EngineLoop
from breakeven.drafter.serving.metrics import Exposition
from breakeven.drafter.serving.scripted import ScriptedCore
from breakeven.drafter.serving.templates import ChatTemplate
from breakeven.drafter.serving.tokenizer import BYTE_OF, TextTokenizer

END = 256  # the id of <|end|>, a special token

TEMPLATE = "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"


@pytest.fixture(scope="session")
def byte_tokenizer() -> TextTokenizer:
    """Token ids 0 to 255 are those bytes; 256 is the special token <|end|>."""
    tokenizer = Tokenizer(models.BPE(vocab=dict(BYTE_OF), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    return TextTokenizer(tokenizer, ChatTemplate(TEMPLATE, {}, "test"))


@dataclass(frozen=True)
class Client:
    """Speaks to the application over a real socket."""

    http: aiohttp.ClientSession
    service: Service
    application: Application

    async def post(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        async with self.http.post(path, data=orjson.dumps(body)) as response:
            return response.status, orjson.loads(await response.read())

    async def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The stream's events, less the end mark, which must be there."""
        async with self.http.post(path, data=orjson.dumps({**body, "stream": True})) as response:
            assert response.status == 200, await response.text()
            assert response.headers["content-type"].startswith("text/event-stream")
            raw = (await response.read()).decode()
        assert raw.endswith("data: [DONE]\n\n")
        return [orjson.loads(event.removeprefix("data: ")) for event in raw.split("\n\n")[:-2]]


Serving = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def serving(byte_tokenizer: TextTokenizer) -> Serving:
    @contextlib.asynccontextmanager
    async def serve(core: ScriptedCore, *, loaded: bool = True, speculating: bool = True, **changes: Any) -> AsyncIterator[Client]:
        application = Application("tiny")
        failures: list[BaseException] = []
        engine = EngineLoop(core, failures.append)
        engine.start()
        service = Service(
            engine=engine,
            tokenizer=byte_tokenizer,
            exposition=Exposition(lambda: engine.stats, model_name="tiny", speculating=speculating),
            context_length=64,
            stop_token_ids=frozenset({END}),
        )
        service = replace(service, **changes)
        if loaded:
            application.service = service
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(application.asgi, lifespan="off", log_config=None, http="httptools", ws="none"))
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
        running = asyncio.create_task(server.serve(sockets=[listening]))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=10)) as http:
                yield Client(http, service, application)
        finally:
            engine.stop("the test is over")
            server.should_exit = True
            await running
            assert engine.join(5)

    return serve
