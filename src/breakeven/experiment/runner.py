"""Carries a plan out: block by block, launch, measure, store, end. Come what may, trials are kept and no server is left.

A void trial is kept and tried again (`MAX_ATTEMPTS`). A server that dies takes its trial with it and is launched anew; an arm that
keeps dying, does not start, or never gives a token is given up and the others go on, unless it is the baseline: then nothing could
be compared.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from breakeven.engines.base import Arm
from breakeven.errors import EngineDied, EngineError, LaunchError
from breakeven.experiment.events import ArmFailed, Launching, Measuring, Note, Ready, Tell, TrialEnded, TrialStarted
from breakeven.experiment.live import LiveArm, MakeLive, Measured
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.schedule import MAX_ATTEMPTS, BlockSteps, Done, Key, Pair, Step, next_block, planned_steps
from breakeven.experiment.signalled import until_signalled
from breakeven.experiment.store import RunStore
from breakeven.experiment.trial import Trial
from breakeven.experiment.voids import NO_TOKENS, find_voids
from breakeven.loadgen.measures import throughput
from breakeven.loadgen.run import Progress
from breakeven.loadgen.samples import ClientHealth, LoadResult, Void

__all__ = ["OpenComparisons", "Outcome", "carry_out"]

OpenComparisons = Callable[[RunRecord], Iterable[Pair]]
# First guess for the time a launch takes, until one has been seen.
LAUNCH_GUESS_S = 20.0
# Windows in which a server takes requests and says nothing, until its arm is given up where it has never said anything.
MAX_SILENT_WINDOWS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`interrupted`: by Ctrl-C, SIGTERM or SIGHUP; the same command goes on. `failed`: arms that could not be served, and why."""

    interrupted: bool
    failed: dict[str, str]


def carry_out(
    plan: Plan, store: RunStore, make_live: MakeLive, open_comparisons: OpenComparisons, tell: Tell, *, side_by_side: bool
) -> Outcome:
    """Measure what is left of `plan`. Blocks; SIGINT, SIGTERM and SIGHUP end servers and return.

    Raises:
        EngineError: the baseline cannot be served, or processes could not be ended.
        StoreError: the store cannot be written; finished trials are kept, servers are ended.
    """
    import uvloop

    run = _Run(plan, store, make_live, open_comparisons, tell, side_by_side)
    return uvloop.run(run.until_signalled())


@dataclass(slots=True)
class _Alive:
    """A launch that is up."""

    live: LiveArm
    launch: str
    num_trials: int = 0


class _Run:
    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        make_live: MakeLive,
        open_comparisons: OpenComparisons,
        tell: Tell,
        side_by_side: bool,
    ) -> None:
        self._plan = plan
        self._store = store
        self._make_live = make_live
        self._open_comparisons = open_comparisons
        self._tell = tell
        self._side_by_side = side_by_side
        self._arms: dict[str, Arm] = {arm.name: arm for arm in plan.arms()}
        self._alive: dict[str, _Alive] = {}
        self._failed: dict[str, str] = {}
        self._was_ready: set[str] = set()
        # windows without a token, of arms that have not given one since this start
        self._num_silent: dict[str, int] = dict.fromkeys(self._arms, 0)
        self._launch_times_s: list[float] = []
        # what each block measures, where that is not everything: blocks before it are complete when it is asked for, so it stays
        self._wanted: dict[int, frozenset[Pair]] = {}
        self._done = _done(store.record().trials)

    async def until_signalled(self) -> Outcome:
        done = await until_signalled(self._all(), self._on_signal)
        return Outcome(interrupted=done is None, failed=self._failed)

    def _on_signal(self, number: signal.Signals, again: bool) -> None:
        if again:
            self._tell(Note(text="Already stopping: waiting for the servers to end"))
        else:
            self._tell(Note(text=f"Stopping on {number.name}: ending the servers, finished trials are kept"))

    async def _all(self) -> bool:
        try:
            while (block := self._next_block()) is not None:
                for turn in block.turns:
                    await self._turn(block.block, turn)
                    await self._stop_all("finished")
        except BaseException as error:
            await self._stop_all("interrupted" if isinstance(error, asyncio.CancelledError) else "run failed")
            raise
        self._store.finish()
        return True

    def _next_block(self) -> BlockSteps | None:
        return next_block(self._plan, self._done, self._failed, self._still_open, side_by_side=self._side_by_side)

    def _still_open(self, num_blocks: int) -> frozenset[Pair]:
        if num_blocks in self._wanted:
            return self._wanted[num_blocks]
        record = self._store.record()
        # a launch that was cut short and made again counts once, so that a killed run has the same budget as one that was not
        seen = replace(
            record,
            trials=[
                trial if self._arms[trial.arm].url is not None else replace(trial, launch=f"{trial.arm}/{trial.block + 1}")
                for trial in record.trials
                if trial.block < num_blocks
            ],
        )
        self._wanted[num_blocks] = frozenset(self._open_comparisons(seen))
        return self._wanted[num_blocks]

    async def _turn(self, block: int, steps: tuple[Step, ...]) -> None:
        for arm in dict.fromkeys(step.arm for step in steps):
            await self._launch(arm, block)
        for step in steps:
            await self._until_settled(step)

    async def _until_settled(self, step: Step) -> None:
        while step.arm not in self._failed:
            alive = self._alive.get(step.arm)
            if alive is None:
                await self._launch(step.arm, step.block)
                continue
            trial = await self._measure(step, alive)
            self._store.add_trial(trial)
            self._tell(TrialEnded(trial=trial, tokens_per_s=throughput(trial)))
            key = (step.arm, step.load.label, step.block, step.repeat)
            before = self._done.get(key, Done())
            self._done[key] = Done(attempts=step.attempt + 1, spent=before.spent + 1, valid=trial.valid)
            if self._is_silent(trial):
                await self._stop(step.arm, "said nothing")
                why = next(void.detail for void in trial.voids if void.code == NO_TOKENS)
                self._give_up(step.arm, EngineDied(f"arm {step.arm}: {MAX_SILENT_WINDOWS} windows and nothing to measure: {why}"))
                return
            died = any(void.code == "server_died" for void in trial.voids)
            if died:
                await self._stop(step.arm, "died")
            if self._done[key].settled:
                if died:
                    self._give_up(
                        step.arm, EngineDied(f"arm {step.arm}: its server died {MAX_ATTEMPTS} times. {trial.voids[-1].detail}")
                    )
                return
            step = replace(step, attempt=step.attempt + 1)

    def _is_silent(self, trial: Trial) -> bool:
        """Whether this window is one too many without a token. One load that stalls an arm that works is no reason."""
        if not any(void.code == NO_TOKENS for void in trial.voids):
            if any(sample.output_tokens for sample in trial.samples):
                self._num_silent.pop(trial.arm, None)
        elif trial.arm in self._num_silent:
            self._num_silent[trial.arm] += 1
        return self._num_silent.get(trial.arm, 0) >= MAX_SILENT_WINDOWS

    async def _measure(self, step: Step, alive: _Alive) -> Trial:
        self._tell(self._started(step))
        started_at = time.time()

        def on_progress(progress: Progress) -> None:
            self._tell(
                Measuring(arm=step.arm, phase=progress.phase, remaining_s=progress.remaining_s, num_tokens=progress.num_tokens)
            )

        try:
            measured = await alive.live.measure(step, alive.num_trials, on_progress)
            voids = find_voids(
                self._arms[step.arm], step.load, measured.result, measured.counters, measured.num_waiting, measured.healthy
            )
        except EngineDied as error:
            nothing = ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.0)
            empty = LoadResult(window_s=self._plan.window_s(step.load), samples=(), health=nothing, steady=False)
            measured, voids = Measured(result=empty, counters=None), (Void(code="server_died", detail=str(error)),)
        alive.num_trials += 1
        return Trial(
            arm=step.arm,
            load=step.load,
            block=step.block,
            launch=alive.launch,
            order=step.order,
            repeat=step.repeat,
            attempt=step.attempt,
            started_at_unix_s=started_at,
            window_s=measured.result.window_s,
            samples=measured.result.samples,
            health=measured.result.health,
            counters=measured.counters,
            voids=voids,
        )

    async def _launch(self, arm: str, block: int) -> None:
        """Bring `arm` up or give it up. One that was ready before gets a second chance: ports and memory come and go."""
        for last_chance in (arm not in self._was_ready, True):
            live = self._make_live(self._arms[arm])
            attached = self._arms[arm].url is not None
            launch = self._store.open_launch(arm, block, live.command, attached=attached)
            self._alive[arm] = _Alive(live=live, launch=launch)
            self._tell(Launching(arm=arm, block=block, elapsed_s=0.0))
            began_s = time.monotonic()
            try:
                facts = await live.start(
                    launch, lambda elapsed_s, line: self._tell(Launching(arm=arm, block=block, elapsed_s=elapsed_s, line=line))
                )
            except LaunchError as error:
                await self._stop(arm, "did not start")
                if last_chance:
                    self._give_up(arm, error)
                    return
                self._tell(Note(text=f"{arm} did not start this time; trying once more"))
                continue
            after_s = time.monotonic() - began_s
            self._store.launch_ready(launch, after_s, facts)
            self._was_ready.add(arm)
            self._launch_times_s.append(after_s)
            self._tell(Ready(arm=arm, block=block, after_s=after_s))
            return

    def _give_up(self, arm: str, error: LaunchError | EngineDied) -> None:
        self._failed[arm] = str(error)
        self._store.add_failure(arm, str(error), error.log_tail)
        self._tell(ArmFailed(arm=arm, message=str(error)))
        if arm == self._plan.baseline:
            raise EngineError(
                f"{error}\nWithout the baseline {arm!r} nothing can be compared, so the run ends here. Finished trials are kept"
            )

    async def _stop(self, arm: str, reason: str) -> None:
        alive = self._alive.pop(arm)
        await alive.live.stop()
        self._store.close_launch(alive.launch, reason)

    async def _stop_all(self, reason: str) -> None:
        """Every server, even where ending or noting one of them fails; the first failure is raised afterwards."""
        failures = []
        for arm in list(self._alive):
            try:
                await self._stop(arm, reason)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _started(self, step: Step) -> TrialStarted:
        left, left_s, launches = self._left()
        settled = sum(done.settled for done in self._done.values())
        launch_s = sum(self._launch_times_s) / len(self._launch_times_s) if self._launch_times_s else LAUNCH_GUESS_S
        # of a block that is added while a verdict is open, only this trial is certain
        left_s = max(left_s, self._plan.trial_s(step.load))
        return TrialStarted(step=step, number=settled + 1, total=settled + left, eta_s=left_s + launches * launch_s)

    def _left(self) -> tuple[int, float, int]:
        """Trials, their seconds, and launches still to come in the blocks that are certain."""
        trials, trials_s, launches = 0, 0.0, 0
        latest = self._wanted[max(self._wanted)] if self._wanted else None
        for block in range(self._plan.launches.min):
            wanted = self._wanted.get(block, latest if self._plan.curve is not None else None)
            for turn in planned_steps(self._plan, block, wanted, side_by_side=self._side_by_side):
                left = [step for step in turn if step.arm not in self._failed and not self._is_settled(step)]
                trials += len(left)
                trials_s += sum(self._plan.trial_s(step.load) for step in left)
                launches += len({step.arm for step in left} - set(self._alive))
        return max(1, trials), trials_s, launches

    def _is_settled(self, step: Step) -> bool:
        done = self._done.get((step.arm, step.load.label, step.block, step.repeat))
        return done is not None and done.settled


def _done(trials: Iterable[Trial]) -> dict[Key, Done]:
    """Where every trial stands, from the trials in the order in which they were stored."""
    done: dict[Key, Done] = {}
    for trial in trials:
        key = (trial.arm, trial.load.label, trial.block, trial.repeat)
        before = done.get(key, Done())
        # a server that died may have been mended since: a new start gives its trials all their tries again
        spent = 0 if any(void.code == "server_died" for void in trial.voids) else before.spent + 1
        done[key] = Done(attempts=trial.attempt + 1, spent=spent, valid=before.valid or trial.valid)
    return done
