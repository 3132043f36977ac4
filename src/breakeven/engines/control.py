"""What a running server is told to do besides answering: empty its prefix cache, start and stop its profiler.

Only servers that Breakeven started are told anything; attached ones belong to their users.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from breakeven.errors import EngineError

__all__ = ["ServerRequest", "tell_server"]

MAX_BODY_BYTES = 100_000
RETRY_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """A POST to `path`. `busy_s`: how long it is repeated while the server says that requests are in its way.

    timeout_s: how long one answer may take; writing a profile takes minutes.
    """

    path: str
    body: Mapping[str, object] | None = None
    busy_s: float = 0.0
    timeout_s: float = 60.0


async def tell_server(base_url: str, request: ServerRequest) -> None:
    """Send `request` and see that it was done.

    Raises:
        EngineError: the server does not know it, or could not do it.
    """
    import aiohttp  # only here: every command knows the engines, few talk to one, and this takes 0.2 s

    url = base_url + request.path
    until_s = time.monotonic() + request.busy_s
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=request.timeout_s)) as session:
        while True:
            try:
                async with session.post(url, json=request.body, allow_redirects=False) as response:
                    status, said = response.status, await response.content.read(MAX_BODY_BYTES)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise EngineError(f"POST {url}: no answer ({str(error) or type(error).__name__})") from error
            if status == 200 and not _says_failed(said):
                return
            if status in (404, 405):
                raise EngineError(f"POST {url} answered {status}: this server has no such page, or was not started with it")
            if time.monotonic() >= until_s:
                raise EngineError(f"POST {url} answered {status}: {said[:200].decode(errors='replace')!a}; expected it done")
            await asyncio.sleep(RETRY_INTERVAL_S)


def _says_failed(body: bytes) -> bool:
    """vLLM answers 200 and says in the body that requests still hold parts of its cache."""
    try:
        answer = orjson.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("success") is False
