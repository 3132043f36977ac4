"""Servers reached by URL: what they serve and what they count, whether Breakeven started them or somebody else did.

An attached server belongs to its users: it is asked and read, never changed. Its API key is read from the environment variable that
the arm names, sent, and shown nowhere. Redirects are not followed: they would carry the key to another host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
import orjson

from breakeven.engines.base import Arm, Counters, Engine
from breakeven.engines.prometheus import add_counters
from breakeven.errors import EngineError, LaunchError, UsageError

__all__ = ["Scraper", "check_attached", "root_url"]

TIMEOUT_S = 30.0
MAX_BODY_BYTES = 64_000_000
NO_SUCH_PAGE = frozenset({301, 302, 307, 308, 401, 403, 404, 405})


def root_url(url: str) -> str:
    """The server's root: without a trailing slash or `/v1`.

    Raises:
        UsageError: not http or https, or it holds a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"URL {url!a}; expected http://HOST:PORT or https://HOST")
    if parts.username or parts.password:
        raise UsageError(
            f"the URL of {parts.hostname} holds a user or password; put the key in the environment and name api_key_env"
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Scraper:
    """Reads one server, or several replicas whose counters are summed: `async with Scraper(...) as scraper: ...`.

    metrics_urls: one for each replica, read at the same moment.
    """

    def __init__(self, engine: Engine, url: str, metrics_urls: Sequence[str] = (), api_key_env: str | None = None) -> None:
        self._engine = engine
        self._root = root_url(url)
        self._metrics_urls = tuple(metrics_urls) or (f"{self._root}/metrics",)
        self._api_key_env = api_key_env
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, headers=_authorization(self._api_key_env))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    async def counters(self) -> Counters:
        """One scrape, summed over replicas; the time is when the last answer was there.

        Raises:
            EngineError: a metrics URL does not answer, or not with this engine's metrics.
        """
        texts = await asyncio.gather(*(self._get(url) for url in self._metrics_urls))
        now_s = time.monotonic()
        return add_counters([self._engine.parse_metrics(text, now_s) for text in texts])

    async def metrics_text(self) -> str:
        """The first replica's exposition, for `Engine.facts`."""
        return await self._get(self._metrics_urls[0])

    async def info_text(self) -> str:
        """The page on which the engine states its settings; empty where it has none or does not answer there."""
        for path in self._engine.info_paths:
            with contextlib.suppress(EngineError):
                return await self._get(self._root + path)
        return ""

    async def is_healthy(self) -> bool | None:
        """What the health page says while the server is at work; None where there is no such page (behind a gateway, say)."""
        assert self._session is not None, "Scraper is used inside `async with`"
        try:
            async with self._session.get(self._root + self._engine.health_path, allow_redirects=False) as response:
                return None if response.status in NO_SUCH_PAGE else response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def served_models(self) -> tuple[str, ...]:
        """The names under which `/v1/models` says that models are served.

        Raises:
            EngineError: it does not answer as an OpenAI-compatible server does.
        """
        url = f"{self._root}/v1/models"
        try:
            return tuple(str(model["id"]) for model in orjson.loads(await self._get(url))["data"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{url} lists no models; expected an OpenAI-compatible server: is this its root URL?") from error

    async def _get(self, url: str) -> str:
        assert self._session is not None, "Scraper is used inside `async with`"
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                body = await response.content.read(MAX_BODY_BYTES)
                # a single read returns what has arrived, not the whole
                while len(body) < MAX_BODY_BYTES and (more := await response.content.read(MAX_BODY_BYTES)):
                    body += more
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineError(
                f"{url} does not answer ({str(error) or type(error).__name__}): is the server up and the URL right?"
            ) from error
        if status in (401, 403):
            asked = (
                f"the key in ${self._api_key_env}" if self._api_key_env else "a request without a key: name api_key_env in the plan"
            )
            raise EngineError(f"{url} answered {status} to {asked}")
        if status != 200:
            raise EngineError(f"{url} answered {status}; expected 200")
        return body.decode(errors="replace")


async def check_attached(arm: Arm, engine: Engine) -> tuple[str, bool]:
    """The name to send requests to, and whether the server shows counters (one behind a gateway often does not).

    Raises:
        LaunchError: the server is not there, not well, or does not serve the arm's model.
        UsageError: the URL or the key is missing.
    """
    if arm.url is None:
        raise UsageError(f"arm {arm.name}: no url; only attached arms are checked this way")
    async with Scraper(engine, arm.url, arm.metrics_urls, arm.api_key_env) as scraper:
        try:
            names = await scraper.served_models()
            if arm.served_name is not None and arm.served_name not in names:
                raise EngineError(f"{arm.url} serves {', '.join(map(ascii, names)) or 'nothing'}; expected {arm.served_name!a}")
            if not names:
                raise EngineError(f"{arm.url} serves no model; wait until it has loaded one")
        except EngineError as error:
            raise LaunchError(f"arm {arm.name}: {error}") from error
        try:
            await scraper.counters()
        except EngineError as error:
            if arm.metrics_urls:
                raise LaunchError(f"arm {arm.name}: {error}") from error
            return arm.served_name or names[0], False
        return arm.served_name or names[0], True


def _authorization(api_key_env: str | None) -> Mapping[str, str]:
    if api_key_env is None:
        return {}
    key = os.environ.get(api_key_env)
    if not key or not key.isprintable():
        raise UsageError(
            f"${api_key_env} is {'not set' if not key else 'not a key'}; the plan's api_key_env names it: export the key first"
        )
    return {"Authorization": f"Bearer {key}"}
