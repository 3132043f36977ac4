"""A headless Chromium spoken to through its DevTools protocol, so that tests see what a reader's browser would do."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--no-first-run",
)


class Page:
    """One tab. `events` keeps what the browser reported, network requests included."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                self._answers.pop(content["id"]).set_result(content)
            else:
                self.events.append(content)

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        content = await asyncio.wait_for(answer, 30)
        assert "error" not in content, content
        result: dict[str, Any] = content["result"]
        return result

    async def open(self, path: Path, width: int = 1280) -> None:
        for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
            await self.send(f"{domain}.enable")
        await self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        await self.send("Page.navigate", url=path.as_uri())
        await self.wait_until("document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> Any:
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def wait_until(self, expression: str) -> None:
        for _ in range(300):
            if await self.evaluate(expression):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def of(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event["method"] == method]

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine; CI installs it (make browser)")
        pytest.skip("no Chromium on this machine: install it to test the report in a browser")
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        address = None
        while address is None:
            line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode(errors="replace")
            assert line, "Chromium ended before it offered its protocol"
            address = re.search(r"DevTools listening on ws://([^/]+)/", line)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address.group(1)}/json/list") as answer:
                tab = next(tab for tab in await answer.json() if tab["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                opened = Page(socket)
                yield opened
                await opened.close()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., str]:
    """Run the command line in a child and return what it printed."""
    import subprocess
    import sys

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "breakeven", *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
