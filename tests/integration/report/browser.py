"""A headless Chromium spoken to over its DevTools protocol: opens a page, counts what it asks the network for, evaluates, prints.

Only aiohttp is needed. Every answer that matters to a test is collected: requests, console errors and security violations.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

__all__ = ["Page", "find_chromium", "open_page"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 60.0


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(slots=True, kw_only=True)
class Page:
    """`requests` are the addresses asked for, the page itself included; `complaints` are console errors and exceptions."""

    socket: aiohttp.ClientWebSocketResponse
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    events: dict[str, asyncio.Event] = field(default_factory=dict)
    calls: int = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.calls += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.waiting[self.calls] = answer
        await self.socket.send_json({"id": self.calls, "method": method, "params": parameters})
        message = await asyncio.wait_for(answer, CALL_TIMEOUT_S)
        assert "error" not in message, f"{method}: {message['error']}"
        result: dict[str, Any] = message["result"]
        return result

    async def listen(self) -> None:
        async for message in self.socket:
            said = message.json()
            if "id" in said:
                self.waiting.pop(said["id"]).set_result(said)
                continue
            event, details = said["method"], said["params"]
            if event == "Network.requestWillBeSent":
                self.requests.append(details["request"]["url"])
            elif event == "Runtime.exceptionThrown":
                self.complaints.append(str(details["exceptionDetails"]))
            elif event == "Log.entryAdded" and details["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(details["entry"]["text"])
            elif event == "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {details['message']}")
            if event in self.events:
                self.events[event].set()

    async def go(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, phone: bool = False) -> None:
        """Open `path` at this size and wait until it has loaded."""
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        loaded = self.events["Page.loadEventFired"] = asyncio.Event()
        await self.call("Page.navigate", url=path.absolute().as_uri())
        await asyncio.wait_for(loaded.wait(), CALL_TIMEOUT_S)

    async def evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def screenshot(self) -> bytes:
        """The whole page as PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        return base64.b64decode(answer["data"])

    async def pdf(self) -> bytes:
        """The page printed on A4."""
        answer = await self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def open_page(chromium: str) -> AsyncIterator[Page]:
    """A browser of its own with an empty profile and no name resolution; it is gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [
            "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run", "--disable-gpu",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]  # fmt: skip
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses to run as root with it
        browser = subprocess.Popen(
            [chromium, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            port = await _port(browser, Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    target = next(item for item in await answer.json() if item["type"] == "page")
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket=socket)
                    listener = asyncio.create_task(page.listen())
                    for domain in ("Page", "Network", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    listener.cancel()
                    with suppress(asyncio.CancelledError):
                        await listener
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait(10)


async def _port(browser: subprocess.Popen[bytes], file: Path) -> int:
    """Chromium writes the port that it chose into its profile."""
    deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
    while asyncio.get_running_loop().time() < deadline:
        assert browser.poll() is None, f"chromium ended with {browser.returncode} before it listened"
        if file.exists() and (text := file.read_text()).count("\n") >= 1:
            return int(text.splitlines()[0])
        await asyncio.sleep(0.05)
    raise AssertionError(f"chromium did not listen within {START_TIMEOUT_S:.0f} s")
