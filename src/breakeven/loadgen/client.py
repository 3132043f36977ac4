"""The streaming chat client: one request in, one answer with arrival times out, no exception out.

aiohttp with orjson, about 20 000 events a second on one core. httpx needs 2.5 times the CPU an event and, at 10 000 a second,
stamps them half a second late or more; bare httptools needs 0.6 times, at the price of connections, TLS and errors of our own
(benchmarks/load_client.py).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from breakeven.errors import UsageError
from breakeven.loadgen.samples import LoadPoint, Prompt
from breakeven.loadgen.stream import AnswerStream, StreamError, printable

__all__ = ["Answer", "ChatClient", "Endpoint", "request_body"]

CONNECT_TIMEOUT_S = 30.0
# Servers close idle connections after 5 s (uvicorn) or more; ours go first, or a request could meet one that is just closing.
KEEPALIVE_S = 2.0
_ERROR_BODY_BYTES = 4096
_OPEN_LOOP_CONNECTIONS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to send requests. `url` is the server's root, with or without /v1; `model` is the name it serves under.

    `api_key_env` names an environment variable: the key itself is read when the client opens and kept nowhere else.
    `extra_fields` go into every request: what this engine needs to be told to report more.
    """

    url: str
    model: str
    api_key_env: str | None = None
    extra_fields: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"server URL {self.url!r} was given; expected http://HOST:PORT or https://HOST")

    @property
    def chat_url(self) -> str:
        return self.url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"

    def api_key(self) -> str | None:
        """The key, from the environment.

        Raises:
            UsageError: the variable is not set.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise UsageError(f"environment variable {self.api_key_env} is not set; it should hold the API key for {self.url}")
        return key


def request_body(
    model: str,
    prompt: Prompt,
    point: LoadPoint,
    *,
    max_tokens: int | None = None,
    extra_fields: Mapping[str, object] | None = None,
) -> bytes:
    """The JSON of one request.

    No `seed` is sent: vLLM samples seeded requests one by one from a generator each, which is not what production traffic costs.
    No `min_tokens` either: `ignore_eos` alone fixes the length, and SGLang pays for min_tokens with a penaliser at every step.
    """
    body: dict[str, Any] = {
        **(extra_fields or {}),
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        "max_tokens": point.max_tokens if max_tokens is None else max_tokens,
        "temperature": point.temperature,
        "top_p": point.top_p,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if point.fixed_length:
        body["ignore_eos"] = True
    return orjson.dumps(body)


@dataclass(slots=True, kw_only=True)
class Answer:
    """One request while it is under way, in absolute `time.perf_counter` seconds. `end_s` is None until it ended or was cut off."""

    start_s: float | None = None
    end_s: float | None = None
    stream: AnswerStream = field(default_factory=AnswerStream)
    error: str | None = None


class ChatClient:
    """A session with as many connections as requests: nothing queues in the client.

    `num_connections` is how many are expected at once, None where nobody can tell (open loop).
    """

    def __init__(self, endpoint: Endpoint, *, num_connections: int | None = None) -> None:
        self.endpoint = endpoint
        self._num_connections = _OPEN_LOOP_CONNECTIONS if num_connections is None else num_connections
        self._key = endpoint.api_key()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ChatClient:
        _allow_open_files(self._num_connections)
        # Uncompressed, or a proxy would hold events back to fill its blocks.
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            headers=headers,
            # A load balancer's cookie would send every request of the run to one replica.
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, body: bytes, answer: Answer) -> None:
        """Send `body` and fill `answer` while the reply streams in. Whatever goes wrong ends up in `answer.error`.

        Cancelling closes the connection, which makes servers abort the request; the answer keeps what had arrived.
        """
        assert self._session is not None
        answer.start_s = time.perf_counter()
        try:
            # allow_redirects=False: a key must not follow a redirect to another host
            async with self._session.post(self.endpoint.chat_url, data=body, allow_redirects=False) as response:
                try:
                    await self._read(response, answer.stream)
                except BaseException:
                    response.close()
                    raise
        except (StreamError, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            answer.error = self._reason(error, answer.stream)
        finally:
            answer.end_s = time.perf_counter()

    async def _read(self, response: aiohttp.ClientResponse, stream: AnswerStream) -> None:
        if response.status != 200:
            raise StreamError(await _refusal(response))
        content, clock = response.content, time.perf_counter
        while data := await content.readany():
            stream.feed(data, clock())
        stream.end()

    def _reason(self, error: Exception, stream: AnswerStream) -> str:
        match error:
            case StreamError():
                reason = str(error)
            case aiohttp.ClientConnectorCertificateError():
                reason = f"TLS certificate refused: {error.certificate_error}"
            case aiohttp.ClientConnectorError():
                reason = f"cannot connect: {error.os_error.strerror or error}"
            case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
                reason = f"connection lost after {stream.output_tokens} tokens"
            case _:
                reason = f"{type(error).__name__}: {error}"
        # Some servers quote the key they refuse.
        return printable(reason.replace(self._key, "[API key]") if self._key else reason)


def _allow_open_files(num_connections: int) -> None:
    """Raise this process's soft limit on open files (256 on macOS, 1024 on Linux) towards what the connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """`HTTP 503 Service Unavailable: <the server's message>`."""
    body = await response.content.read(_ERROR_BODY_BYTES)
    message = body.decode("utf-8", "replace")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, Mapping):
        found = document.get("error", document)
        words = found.get("message") if isinstance(found, Mapping) else found
        message = words if isinstance(words, str) else message
    return f"HTTP {response.status} {response.reason or ''}".rstrip() + (f": {message}" if message.strip() else "")
