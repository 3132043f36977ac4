"""An arm with a real server behind it: launched and owned by the run, or attached to by its URL."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from breakeven.engines.base import Arm, Counters, Engine
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.engines.server_log import log_lines
from breakeven.errors import EngineDied, LaunchError
from breakeven.experiment.live import Measured, seed_of
from breakeven.experiment.plan_schema import TrialPlan
from breakeven.experiment.schedule import Step
from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.run import Progress, run_load
from breakeven.loadgen.samples import Prompt

__all__ = ["AttachedArm", "LaunchedArm", "Traffic"]

# What an open loop's requests get to finish after the window, so that their whole latencies are known.
DRAIN_S = 30.0
REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What every arm of a run is asked: the same prompts in the same order at the same place of every block."""

    prompts: Sequence[Prompt]
    trial: TrialPlan
    seed: int


class _Server:
    """A server that answers at `url`; `check` raises EngineDied once it is gone."""

    def __init__(self, arm: Arm, engine: Engine, url: str, metrics_urls: Sequence[str], check: Callable[[], None]) -> None:
        self._arm, self._engine, self._url = arm, engine, url
        self._metrics_urls, self._check = metrics_urls, check
        self._endpoint = Endpoint(url=url, model=arm.served_name or "", api_key_env=arm.api_key_env)
        self.has_counters = True

    async def look(self) -> str:
        """Find out under which name the model is served and whether there are counters; returns the text of /metrics.

        Raises:
            LaunchError: it does not answer as an OpenAI-compatible server does.
        """
        root = self._url.removesuffix("/v1")
        if self._arm.served_name is None:
            text = await self._get(f"{root}/v1/models")
            try:
                import orjson

                model = str(orjson.loads(text)["data"][0]["id"])
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise LaunchError(f"arm {self._arm.name}: {root}/v1/models names no model; give served_name in the plan") from error
            self._endpoint = Endpoint(url=self._url, model=model, api_key_env=self._arm.api_key_env)
        try:
            return "\n".join([await self._get(url) for url in self._metrics_urls])
        except LaunchError:
            if self._arm.url is None or self._arm.metrics_urls:
                raise
            self.has_counters = False  # an attached server behind a gateway often shows none
            return ""

    async def measure(self, step: Step, traffic: Traffic, on_progress: Callable[[Progress], None]) -> Measured:
        scrapes: list[Counters] = []

        async def scrape() -> None:
            if self.has_counters:
                texts = [await self._get(url) for url in self._metrics_urls]
                scrapes.append(_summed([self._engine.parse_metrics(text, time.monotonic()) for text in texts]))

        load = asyncio.ensure_future(
            run_load(
                self._endpoint,
                step.load,
                traffic.prompts,
                seed=seed_of(traffic.seed, step.load.label, step.block, step.repeat),
                warmup_s=traffic.trial.warmup_s,
                window_s=traffic.trial.window_s,
                on_window_start=scrape,
                on_window_end=scrape,
                on_progress=on_progress,
                drain_s=0.0 if step.load.rate_per_s is None else DRAIN_S,
            )
        )
        try:
            while not load.done():
                self._check()
                await asyncio.wait([load], timeout=0.2)
            try:
                result = await load
            except LaunchError as error:
                self._check()
                raise EngineDied(str(error)) from error
        finally:
            load.cancel()
            await asyncio.wait([load])
        self._check()
        return Measured(result=result, counters=(scrapes[0], scrapes[1]) if len(scrapes) == 2 else None)

    async def _get(self, url: str) -> str:
        key = self._endpoint.api_key()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise LaunchError(f"arm {self._arm.name}: {url} answered {response.status}; expected 200")
                return await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise LaunchError(f"arm {self._arm.name}: {url} does not answer ({str(error) or type(error).__name__})") from error


class LaunchedArm:
    """A server of the run's own, from start to proven end."""

    def __init__(self, arm: Arm, engine: Engine, traffic: Traffic, *, ledger: LaunchLedger, logs: Path, timeout_s: float) -> None:
        self._arm, self._engine, self._traffic = arm, engine, traffic
        self._ledger, self._logs, self._timeout_s = ledger, logs, timeout_s
        self._port = choose_port()
        self._command = engine.launch_command(arm, self._port)
        self.command = shown_command(self._command.argv, self._command.env)
        self._process: ServerProcess | None = None
        self._server: _Server | None = None

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        log = self._logs / log_name(launch)
        process = ServerProcess.start(self._command, name=self._arm.name, port=self._port, log=log, ledger=self._ledger)
        self._process = process
        await process.wait_ready(
            self._engine.health_path, self._engine.explain_failure, timeout_s=self._timeout_s, progress=on_wait
        )
        url = process.base_url
        self._server = _Server(self._arm, self._engine, url, [f"{url}/metrics"], process.check_alive)
        metrics = await self._server.look()
        return self._engine.facts(self._arm, log_lines(log), metrics)

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        assert self._server is not None
        return await self._server.measure(step, self._traffic, on_progress)

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop()


class AttachedArm:
    """Somebody else's server: asked and read, never started or ended."""

    def __init__(self, arm: Arm, engine: Engine, traffic: Traffic) -> None:
        assert arm.url is not None
        self._arm, self._engine, self._traffic = arm, engine, traffic
        self.command = f"(attached to {arm.url})"
        metrics_urls = arm.metrics_urls or (f"{arm.url.removesuffix('/v1')}/metrics",)
        self._server = _Server(arm, engine, arm.url, metrics_urls, lambda: None)

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        on_wait(0.0, "")
        metrics = await self._server.look()
        facts = self._engine.facts(self._arm, (), metrics) if self._server.has_counters else {}
        return {"attached": self._arm.url, "counters": self._server.has_counters, **facts}

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        return await self._server.measure(step, self._traffic, on_progress)

    async def stop(self) -> None:
        return


def log_name(launch: str) -> str:
    """A file name for a launch's log; distinct launches get distinct names, whatever arms are called."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", launch)
    return f"{plain}-{zlib.crc32(launch.encode()):08x}.log"


def shown_command(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """As it can be pasted into a shell."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)])


def _summed(replicas: Sequence[Counters]) -> Counters:
    first, *others = replicas
    for other in others:
        acceptance = first.acceptance if other.acceptance is None else other.acceptance
        if first.acceptance is not None and other.acceptance is not None:
            acceptance = first.acceptance + other.acceptance
        requests = None if first.num_requests is None or other.num_requests is None else first.num_requests + other.num_requests
        first = Counters(
            time_s=first.time_s,
            prompt_tokens=first.prompt_tokens + other.prompt_tokens,
            generation_tokens=first.generation_tokens + other.generation_tokens,
            num_running=first.num_running + other.num_running,
            num_waiting=first.num_waiting + other.num_waiting,
            num_preemptions=first.num_preemptions + other.num_preemptions,
            num_requests=requests,
            acceptance=acceptance,
        )
    return first
