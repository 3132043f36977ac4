"""A headless Chromium spoken to over its DevTools protocol, and reports to open in it: real runs of the fake engine, hostile text.

What the page asks the network for, and whatever the browser complains about, is collected while a test looks at the page.
"""

from __future__ import annotations

import asyncio
import base64
import json
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
import pytest
import yaml
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.report.html import render_html
from breakeven.verdict.reported import judge_reported
from breakeven.verdict.result import Result

EXAMPLES = Path(__file__).parents[3] / "examples"
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
            elif event == "Audits.issueAdded":
                self.complaints.append(str(details["issue"]))
            elif event == "Runtime.consoleAPICalled" and details["type"] in {"error", "warning"}:
                self.complaints.append(str(details["args"]))
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
                    for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
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


@pytest.fixture(scope="session")
def chromium() -> str:
    path = find_chromium()
    if path is None:
        words = "no Chromium on PATH (make browser installs it on Debian): the report page cannot be opened"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return path


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Page]:
    async with open_page(chromium) as opened:
        yield opened


def measured(folder: Path, name: str, arms: dict[str, Any], concurrencies: list[int]) -> Result:
    """The result of a run of the fake engine, as a user gets it."""
    plan = {
        "name": name,
        "target": "fake",
        "engine": "fake",
        "launches": {"min": 2, "max": 2},
        "max_running_requests": max(concurrencies),
        "workload": {"max_tokens": 96, "fixed_length": True},
        "load": [{"concurrency": concurrency} for concurrency in concurrencies],
        "trial": {"warmup_s": 2, "window_s": 6},
        "arms": arms,
    }
    path, runs = folder / "plan.yaml", folder / "runs"
    path.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
    done = CliRunner().invoke(app, ["bench", str(path), "--runs-dir", str(runs)])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["report", str(runs / name), "--format", "json"])
    assert done.exit_code == 0, done.output
    return Result.model_validate_json(done.stdout)


def arm(num_drafts: int, *, forced: float | None = None, method: str = "eagle3", **truth: Any) -> dict[str, Any]:
    speculation = {"method": method, "num_draft_tokens": num_drafts, "drafter": "random", "forced_accept_length": forced}
    if method == "ngram":
        del speculation["drafter"]
    kept = {key: value for key, value in speculation.items() if value is not None}
    return {"speculation": kept, "simulation": {"launch_sd": 0.03, "drift_sd": 0.02, **truth}}


@pytest.fixture(scope="session")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The five arms of the demo, a dead drafter among them."""
    arms = {
        "plain": {"simulation": {"launch_sd": 0.03, "drift_sd": 0.02}},
        "ngram": arm(3, method="ngram", cost_ratio=1.2, joint=[0.5, 0.3, 0.2], drafted_share=0.4),
        "untrained": arm(3, cost_ratio=1.5, joint=[0.0, 0.0, 0.0]),
        "forced-2": arm(3, forced=2.0, cost_ratio=1.5),
        "forced-3": arm(3, forced=3.0, cost_ratio=1.5),
    }
    return measured(tmp_path_factory.mktemp("laptop"), "laptop", arms, [1, 4])


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Twelve arms at eight load points."""
    concurrencies = [1, 2, 4, 8, 16, 32, 64, 128]
    arms: dict[str, Any] = {"plain": {"simulation": {"launch_sd": 0.03}}}
    for num_drafts in range(1, 9):
        costs = {concurrency: 1.1 + 0.003 * num_drafts * concurrency for concurrency in concurrencies}
        joint = [0.8**position for position in range(1, num_drafts + 1)]
        arms[f"eagle3-{num_drafts}-drafts"] = arm(num_drafts, cost_ratio=costs, joint=joint)
        if num_drafts in {3, 5, 7}:
            arms[f"forced-{num_drafts}-drafts"] = arm(num_drafts, forced=2.5, cost_ratio=costs)
    return measured(tmp_path_factory.mktemp("wide"), "wide", arms, concurrencies)


@pytest.fixture(scope="session")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Forced arms over drafts with a gap to read off and a cliff, and a drafter on the surface."""
    concurrencies = [1, 8, 64]
    arms: dict[str, Any] = {"plain": {"simulation": {"launch_sd": 0.005}}}
    for num_drafts in (1, 3, 4, 6):
        costs = {c: (1 + 0.15 * num_drafts) * (2.5 if c * (num_drafts + 1) > 256 else 1.0) for c in concurrencies}
        arms[f"forced-{num_drafts}"] = arm(num_drafts, forced=1.5, cost_ratio=costs) | {"simulation": {"cost_ratio": costs}}
    arms["drafter"] = arm(3, joint=[0.7, 0.5, 0.3], cost_ratio=dict.fromkeys(concurrencies, 1.45))
    return measured(tmp_path_factory.mktemp("surface"), "surface", arms, concurrencies)


@pytest.fixture(scope="session")
def reported() -> Result:
    """Figures that somebody reported: no intervals, load points without a concurrency."""
    return judge_reported(EXAMPLES / "kimi-k2.5-blackwell" / "reported.yaml")


HOSTILE = "</script><img src=x onerror=window.pwned=1><script>window.pwned=1</script>\x1b[31m\u202e\u2028" + "A" * 10_000
FIXED_WORDS = {"side", "kind", "outcome", "severity", "confidence", "basis"}


@pytest.fixture(scope="session")
def hostile(laptop: Result) -> Result:
    """A measured result in which every string that comes from outside attacks, names and keys included."""

    def spoilt(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {HOSTILE + name if key == "provenance" else name: spoilt(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoilt(item, key) for item in value]
        return value + HOSTILE if isinstance(value, str) and (key not in FIXED_WORDS or "forced" in value) else value

    return Result.model_validate(spoilt(json.loads(laptop.model_dump_json()), ""))


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The report of the result whose fixture is named by the test's parameter, as a file."""
    path = tmp_path / "report.html"
    path.write_text(render_html(request.getfixturevalue(request.param)), encoding="utf-8")
    return path
