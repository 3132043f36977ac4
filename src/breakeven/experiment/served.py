"""An arm with a real server behind it: launched and owned by the run, or attached to by its URL."""

from __future__ import annotations

import asyncio
import re
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from breakeven.engines.attached import Scraper, check_attached
from breakeven.engines.base import Arm, Counters, Engine, LaunchCommand
from breakeven.engines.control import tell_server
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.engines.server_log import log_lines
from breakeven.errors import EngineDied, EngineError, LaunchError
from breakeven.experiment.estimated_acceptance import LogWindow, with_estimated_acceptance
from breakeven.experiment.live import MAX_STRETCH, Measured, seed_of
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.schedule import Step
from breakeven.loadgen.answers import GreedyAnswer, OnAnswer, ask_greedily
from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.run import Progress, run_load
from breakeven.loadgen.samples import LoadPoint, Prompt

__all__ = ["AttachedArm", "LaunchedArm", "Questions", "log_name", "shown_command"]

T = TypeVar("T")

# What an open loop's requests get to finish after the window, so that their whole latencies are known.
DRAIN_S = 30.0
DEATH_CHECK_S = 0.2
# Looks at the server's queue within a window: a request waits for a moment between any two steps, a queue is there at every look.
QUEUE_LOOKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What every arm of a run is asked: the same prompts in the same order at the same place of every block."""

    prompts: Sequence[Prompt]
    warmup_s: float
    window_s: Callable[[LoadPoint], float]
    seed: int

    @staticmethod
    def of(plan: Plan, prompts: Sequence[Prompt]) -> Questions:
        return Questions(prompts=prompts, warmup_s=plan.trial.warmup_s, window_s=plan.window_s, seed=plan.seed)


class LaunchedArm:
    """A server of the run's own, from start to proven end."""

    def __init__(
        self,
        arm: Arm,
        engine: Engine,
        questions: Questions,
        *,
        ledger: LaunchLedger,
        logs: Path,
        timeout_s: float,
        port: int | None = None,
        command: LaunchCommand | None = None,
    ) -> None:
        """port: None chooses a free one. command: what to run on that port in place of what the engine makes of the arm."""
        self._arm, self._engine, self._questions = arm, engine, questions
        self._ledger, self._logs, self._timeout_s = ledger, logs, timeout_s
        self._port = choose_port() if port is None else port
        self._launch_command = command or engine.launch_command(arm, self._port)
        self.command = shown_command(self._launch_command.argv, self._launch_command.env)
        self._process: ServerProcess | None = None
        self._model = ""
        self._request_fields: Mapping[str, object] = {}

    @property
    def process(self) -> ServerProcess:
        """The server, once it has been started."""
        assert self._process is not None, "start comes first"
        return self._process

    @property
    def model(self) -> str:
        """What requests call the model, once the server is ready."""
        return self._model

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        refusal = self._engine.refusal(self._arm)
        if refusal is not None:
            raise LaunchError(f"arm {self._arm.name}: not started. {refusal}")
        log = self._logs / log_name(launch)
        process = ServerProcess.start(self._launch_command, name=self._arm.name, port=self._port, log=log, ledger=self._ledger)
        self._process = process
        await process.wait_ready(
            self._engine.health_path, self._engine.explain_failure, timeout_s=self._timeout_s, progress=on_wait
        )
        async with Scraper(self._engine, process.base_url) as scraper:
            try:
                self._model = (await scraper.served_models())[0]
                await scraper.counters()
                metrics, info = await scraper.metrics_text(), await scraper.info_text()
                facts = self._engine.facts(self._arm, log_lines(log), metrics, info)
                self._request_fields = self._engine.request_fields(self._arm, facts)
                await self._empty_cache()
                return facts
            except (EngineError, IndexError) as error:
                raise LaunchError(f"arm {self._arm.name}: the server is ready but {error or 'serves no model'}") from error

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        process, explain = self.process, self._engine.explain_failure
        endpoint = Endpoint(url=process.base_url, model=self._model, extra_fields=self._request_fields)
        window = LogWindow(process.log)
        try:
            await self._empty_cache()
        except EngineError as error:
            process.check_alive(explain)
            raise EngineDied(f"arm {self._arm.name}: its cache cannot be emptied any more: {error}") from error
        async with Scraper(self._engine, process.base_url) as scraper:
            measured = await _measure(
                endpoint, scraper, lambda: process.check_alive(explain), step, self._questions, on_progress, window
            )
        return with_estimated_acceptance(measured, self._arm, self._engine.log_acceptance(self._arm, window.lines()))

    async def _empty_cache(self) -> None:
        request = self._engine.reset_request(self._arm) if self._arm.resets_cache else None
        if request is not None:
            await tell_server(self.process.base_url, request)

    async def answer(
        self, prompts: Sequence[Prompt], *, max_tokens: int, concurrency: int, seed: int, on_answer: OnAnswer
    ) -> list[GreedyAnswer]:
        process, explain = self.process, self._engine.explain_failure
        endpoint = Endpoint(url=process.base_url, model=self._model)
        asking = asyncio.ensure_future(
            ask_greedily(endpoint, prompts, max_tokens=max_tokens, concurrency=concurrency, on_answer=on_answer)
        )
        return await _while_alive(asking, lambda: process.check_alive(explain, what="was being asked"))

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop()


class AttachedArm:
    """Somebody else's server: asked and read, never started or ended."""

    def __init__(self, arm: Arm, engine: Engine, questions: Questions) -> None:
        assert arm.url is not None, "an attached arm has a url"
        self._arm, self._engine, self._questions = arm, engine, questions
        self._url = arm.url
        self.command = f"(attached to {arm.url})"
        self._model, self._has_counters = "", False
        self._request_fields: Mapping[str, object] = {}

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        on_wait(0.0, "")
        self._model, self._has_counters = await check_attached(self._arm, self._engine)
        known = {"attached": self._url, "model": self._model, "counters": self._has_counters}
        if not self._has_counters:
            return known
        try:
            async with self._scraper() as scraper:
                metrics, info = await scraper.metrics_text(), await scraper.info_text()
                facts = {**known, **self._engine.facts(self._arm, (), metrics, info)}
                self._request_fields = self._engine.request_fields(self._arm, facts)
                return facts
        except EngineError as error:
            # one arm's server going away while it is looked at is that arm's failure, not the run's
            raise LaunchError(f"arm {self._arm.name}: {error}") from error

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        endpoint = Endpoint(url=self._url, model=self._model, api_key_env=self._arm.api_key_env, extra_fields=self._request_fields)
        async with self._scraper() as scraper:
            counted = scraper if self._has_counters else None
            measured = await _measure(endpoint, counted, lambda: None, step, self._questions, on_progress)
        return with_estimated_acceptance(measured, self._arm, None)

    async def answer(
        self, prompts: Sequence[Prompt], *, max_tokens: int, concurrency: int, seed: int, on_answer: OnAnswer
    ) -> list[GreedyAnswer]:
        endpoint = Endpoint(url=self._url, model=self._model, api_key_env=self._arm.api_key_env)
        return await ask_greedily(endpoint, prompts, max_tokens=max_tokens, concurrency=concurrency, on_answer=on_answer)

    async def stop(self) -> None:
        return

    def _scraper(self) -> Scraper:
        return Scraper(self._engine, self._url, self._arm.metrics_urls, self._arm.api_key_env)


async def _measure(
    endpoint: Endpoint,
    scraper: Scraper | None,
    check_alive: Callable[[], None],
    step: Step,
    questions: Questions,
    on_progress: Callable[[Progress], None],
    log: LogWindow | None = None,
) -> Measured:
    """One window, ended at once when the server is gone. `log` is opened and closed along with it.

    Raises:
        EngineDied: `check_alive` says so, or the counters cannot be read any more.
    """
    window_s = questions.window_s(step.load)
    edges: list[Counters] = []
    num_waiting: list[int] = []
    gauges: list[float] = []
    healthy: list[bool] = []
    looking: asyncio.Future[None] | None = None

    def look(counters: Counters) -> None:
        num_waiting.append(counters.num_waiting)
        if counters.gauge_accept_length is not None:
            gauges.append(counters.gauge_accept_length)

    async def look_at_queue(counters: Scraper) -> None:
        while True:
            await asyncio.sleep(window_s / (QUEUE_LOOKS + 1))
            look(await counters.counters())
            if (well := await counters.is_healthy()) is not None:
                healthy.append(well)

    async def open_window() -> None:
        nonlocal looking
        if log is not None:
            log.open()
        if scraper is not None:
            edges.append(await scraper.counters())
            looking = asyncio.ensure_future(look_at_queue(scraper))

    async def close_window() -> None:
        if log is not None:
            log.close()
        if scraper is not None:
            edges.append(await scraper.counters())

    load = asyncio.ensure_future(
        run_load(
            endpoint,
            step.load,
            questions.prompts,
            seed=seed_of(questions.seed, step.load.label, step.block, step.repeat),
            warmup_s=questions.warmup_s,
            window_s=window_s,
            max_window_s=MAX_STRETCH * window_s,
            on_window_start=open_window,
            on_window_end=close_window,
            on_progress=on_progress,
            drain_s=0.0 if step.load.rate_per_s is None else DRAIN_S,
        )
    )
    try:
        result = await _while_alive(load, check_alive)
    except EngineDied:
        raise
    except EngineError as error:
        check_alive()
        raise EngineDied(f"the counters cannot be read any more: {error}") from error
    finally:
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    counters = (edges[0], edges[1]) if len(edges) == 2 else None
    return Measured(result=result, counters=counters, num_waiting=tuple(num_waiting), gauges=tuple(gauges), healthy=tuple(healthy))


async def _while_alive(work: asyncio.Future[T], check_alive: Callable[[], None]) -> T:
    """The result of `work`, which is given up at once when `check_alive` raises, and ended whatever happens."""
    try:
        while not work.done():
            check_alive()
            await asyncio.wait([work], timeout=DEATH_CHECK_S)
        check_alive()
        return work.result()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def log_name(launch: str) -> str:
    """A file name for a launch's log; distinct launches get distinct names, whatever arms are called."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", launch)
    return f"{plain}-{zlib.crc32(launch.encode()):08x}.log"


def shown_command(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """As it can be pasted into a shell."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), shlex.join(argv)])
