"""An arm of a run, launched again: measured once at one load point, held against the run, and left to whoever wants it."""

from __future__ import annotations

import asyncio
import platform
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from breakeven.checkpoints.named_path import without_detours
from breakeven.deploy.choice import Choice, choose
from breakeven.deploy.relaunch import Relaunch, changes_since, relaunch
from breakeven.deploy.reproduction import Reproduction, reproduction
from breakeven.engines.ledger import LaunchLedger, end_leftovers, registered
from breakeven.engines.ports import choose_port
from breakeven.engines.registry import get_engine
from breakeven.experiment.events import Launching, Measuring, Note, Ready, Tell, TrialStarted
from breakeven.experiment.live import Measured
from breakeven.experiment.measure import run_prompts
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.schedule import MAX_ATTEMPTS, Step
from breakeven.experiment.served import LaunchedArm, Questions
from breakeven.experiment.signalled import until_signalled
from breakeven.experiment.stored_run import read_run, stored_plan
from breakeven.experiment.summary import RunSummary
from breakeven.experiment.trial import Trial
from breakeven.experiment.voids import find_voids
from breakeven.loadgen.run import Progress
from breakeven.verdict.equality.check import faulty_arms, read_equality

__all__ = ["Prepared", "Served", "prepare", "serve"]

ALIVE_CHECK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that can be known before anything is started."""

    folder: Path
    record: RunRecord
    plan: Plan
    choice: Choice
    relaunch: Relaunch
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that answers requests at `url`. `command` is what started it, to be pasted into a shell."""

    run: str
    arm: str
    load: str
    why: str
    url: str
    model: str
    pid: int
    log: str
    command: str
    detached: bool
    ready_after_s: float
    reproduction: Reproduction
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def prepare(folder: Path, *, arm: str | None = None, label: str | None = None) -> Prepared:
    """Choose the arm, find its command and check that what it needs is still there.

    Raises:
        StoreError: no run there.
        UsageError: the arm or load point makes no sense, or cannot be served from here.
        CheckpointError: a model is gone.
    """
    record, plan = read_run(folder), stored_plan(folder)
    assert plan is not None, "a run that can be read has a plan"
    choice = choose(record, arm, label, faulty=faulty_arms(record, read_equality(folder)))
    again = relaunch(folder, record, choice.arm)
    get_engine(choice.arm.engine).check(choice.arm)
    return Prepared(
        folder=folder, record=record, plan=plan, choice=choice, relaunch=again, warnings=changes_since(record, choice.arm)
    )


def serve(prepared: Prepared, *, port: int | None, detach: bool, tell: Tell, on_served: Callable[[Served], None]) -> bool:
    """Launch, measure, say so to `on_served`; then return (detached) or stay until a signal or the server's death.

    Returns whether it came so far: False when a signal ended it before there was anything to say. Nothing is left running then,
    nor when an error is raised.

    Raises:
        UsageError: the port is taken.
        StoreError: somebody is measuring this run.
        LaunchError, EngineDied: the server did not start, or went away.
    """
    import uvloop

    folder = prepared.folder
    with RunLock(folder):
        end_leftovers(folder)
        others = [server for server in registered(folder).detached if server.members]
        with LaunchLedger(folder) as ledger:
            serving = _Serving(prepared, choose_port(port), detach, ledger, tell, on_served)
            for other in others:
                text = f"{other.about.get('arm', 'a server')} of this run is served already at {other.about.get('url', 'unknown')}"
                serving.warnings.append(f"{text}: the two share the machine, which slows this measurement (breakeven stop ends it)")
            return uvloop.run(serving.until_signalled())


class _Serving:
    def __init__(
        self,
        prepared: Prepared,
        port: int,
        detach: bool,
        ledger: LaunchLedger,
        tell: Tell,
        on_served: Callable[[Served], None],
    ) -> None:
        folder, arm = prepared.folder, replace(prepared.choice.arm, resets_cache=False)
        plan = prepared.plan
        self._prepared, self._detach, self._tell, self._on_served = prepared, detach, tell, on_served
        self._arm, self._load, self._plan = arm, prepared.choice.load, plan
        self._engine = get_engine(arm.engine)
        self._launch = f"serve/{arm.name}/{time.strftime('%Y%m%dT%H%M%S')}"
        self._live = LaunchedArm(
            arm,
            self._engine,
            Questions.of(plan, run_prompts(plan)),
            ledger=ledger,
            logs=folder / "logs",
            timeout_s=plan.start_timeout_s,
            port=port,
            command=prepared.relaunch.command(port),
        )
        # a block of its own, so that prompts come in an order that no launch of the run has had
        self._block = 1 + max((trial.block for trial in prepared.record.trials), default=-1)
        self._is_served = False
        self.warnings = list(prepared.warnings)

    async def until_signalled(self) -> bool:
        await until_signalled(self._all(), self._on_signal)
        return self._is_served

    def _on_signal(self, _number: signal.Signals, again: bool) -> None:
        if not again:
            self._tell(Note(text=f"Stopping: ending {self._arm.name}"))

    async def _all(self) -> None:
        leave_running = False
        try:
            began_s = time.monotonic()
            self._tell(Launching(arm=self._arm.name, block=self._block, elapsed_s=0.0))
            await self._live.start(self._launch, self._on_wait)
            ready_after_s = time.monotonic() - began_s
            self._tell(Ready(arm=self._arm.name, block=self._block, after_s=ready_after_s))
            told = reproduction(RunSummary(self._prepared.record), await self._measured())
            served = self._served(told, ready_after_s)
            self._check_alive()
            if self._detach:
                about = {"arm": served.arm, "url": served.url, "log": served.log, "host": platform.node()}
                self._live.process.detach(about)
                leave_running = True
            self._is_served = True
            self._on_served(served)
            while not leave_running:
                await asyncio.sleep(ALIVE_CHECK_S)
                self._check_alive()
        finally:
            if not leave_running:
                await self._live.stop()

    async def _measured(self) -> Trial:
        """One window that counts, or the last that does not."""
        for attempt in range(MAX_ATTEMPTS):
            step = Step(arm=self._arm.name, load=self._load, block=self._block, repeat=attempt, order=0)
            self._tell(TrialStarted(step=step, number=1, total=1, eta_s=self._plan.trial_s(self._load)))
            started_at = time.time()
            measured: Measured = await self._live.measure(step, attempt, self._on_progress)
            result = measured.result
            trial = Trial(
                arm=self._arm.name,
                load=self._load,
                block=self._block,
                launch=self._launch,
                order=0,
                repeat=attempt,
                started_at_unix_s=started_at,
                window_s=result.window_s,
                samples=result.samples,
                health=result.health,
                counters=measured.counters,
                voids=find_voids(self._arm, self._load, result, measured.counters, measured.num_waiting, measured.healthy),
            )
            if trial.valid:
                break
        return trial

    def _served(self, told: Reproduction, ready_after_s: float) -> Served:
        process, choice = self._live.process, self._prepared.choice
        return Served(
            run=str(self._prepared.folder),
            arm=self._arm.name,
            load=self._load.label,
            why=choice.why,
            url=process.base_url,
            model=self._live.model,
            pid=process.pid,
            log=str(without_detours(process.log.absolute())),
            command=self._live.command,
            detached=self._detach,
            ready_after_s=ready_after_s,
            reproduction=told,
            notes=choice.notes,
            warnings=tuple(self.warnings),
        )

    def _check_alive(self) -> None:
        self._live.process.check_alive(self._engine.explain_failure, what="was being served")

    def _on_wait(self, elapsed_s: float, line: str) -> None:
        self._tell(Launching(arm=self._arm.name, block=self._block, elapsed_s=elapsed_s, line=line))

    def _on_progress(self, progress: Progress) -> None:
        self._tell(
            Measuring(arm=self._arm.name, phase=progress.phase, remaining_s=progress.remaining_s, num_tokens=progress.num_tokens)
        )
