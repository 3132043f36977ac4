"""One arm under its engine's profiler: launched for it alone, loaded as a load point says, traced for a moment, ended.

Never part of a run: profilers slow servers down, so nothing that is timed here means anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from breakeven.checkpoints.named_path import without_detours
from breakeven.engines.base import Arm
from breakeven.engines.control import ServerRequest, tell_server
from breakeven.engines.ledger import LaunchLedger, end_leftovers
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError, UsageError
from breakeven.experiment.events import Launching, Note, Ready, Tell
from breakeven.experiment.live import seed_of
from breakeven.experiment.measure import check_disk, run_prompts
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.served import LaunchedArm, Questions
from breakeven.experiment.signalled import until_signalled
from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.measures import tokens_in_window
from breakeven.loadgen.run import run_load
from breakeven.loadgen.samples import LoadPoint

__all__ = ["FOLDER", "Profiled", "profile", "profiled_arm"]

FOLDER = "profile"
# Some releases say that they have stopped and go on writing.
WRITTEN_WITHIN_S = 300.0
QUIET_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """`files` are the traces, relative to `folder`, with their sizes in bytes; `num_tokens` came out while the profiler ran."""

    arm: str
    load: str
    folder: str
    files: dict[str, int]
    seconds: float
    num_tokens: int


def profiled_arm(plan: Plan, name: str, folder: Path) -> Arm:
    """The arm called `name`, with a place for its traces in the run `folder`.

    Raises:
        UsageError: no such arm, or one whose server cannot be profiled.
        CheckpointError: it cannot be served.
    """
    arms = {arm.name: arm for arm in plan.arms()}
    if name not in arms:
        raise UsageError(f"arm {name!a}: not in the plan; expected one of: {', '.join(map(ascii, arms))}")
    arm = arms[name]
    if arm.engine == "fake":
        raise UsageError(f"arm {name}: simulated, so there is nothing to profile")
    if arm.url is not None:
        raise UsageError(f"arm {name}: an attached server belongs to its users and is never changed; profile it with its own tools")
    place = without_detours(folder.absolute()) / FOLDER / f"{name.replace('/', '-')}-{time.strftime('%Y%m%dT%H%M%S')}"
    arm = replace(arm, profile_to=place)
    engine = get_engine(arm.engine)
    engine.profile_requests(arm)
    engine.check(arm)
    return arm


def profile(plan: Plan, arm: Arm, load: LoadPoint, folder: Path, *, seconds: float, tell: Tell) -> Profiled | None:
    """Launch `arm`, load it, profile it for `seconds`, end it; None where a signal ended it. Nothing is left running.

    Raises:
        StoreError: the run's folder is in use, or has no room.
        LaunchError, EngineDied: the server did not start, or went away.
        EngineError: it does not profile, or wrote no traces.
    """
    import uvloop

    assert arm.profile_to is not None, "profiled_arm says where to"
    check_disk(folder)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    arm.profile_to.mkdir(parents=True, exist_ok=True)
    with ExitStack() as closing:
        closing.enter_context(RunLock(folder))
        end_leftovers(folder)
        ledger = closing.enter_context(LaunchLedger(folder))
        questions = Questions.of(plan, run_prompts(plan))
        live = LaunchedArm(
            arm, get_engine(arm.engine), questions, ledger=ledger, logs=folder / "logs", timeout_s=plan.start_timeout_s
        )

        def on_signal(_number: int, again: bool) -> None:
            if not again:
                tell(Note(text=f"Stopping: ending {arm.name}"))

        try:
            return uvloop.run(until_signalled(_profile(live, arm, load, questions, seconds, tell), on_signal))
        finally:
            # of one that was ended before it wrote anything, nothing stays
            for emptied in (arm.profile_to, arm.profile_to.parent):
                with suppress(OSError):
                    emptied.rmdir()


async def _profile(live: LaunchedArm, arm: Arm, load: LoadPoint, questions: Questions, seconds: float, tell: Tell) -> Profiled:
    assert arm.profile_to is not None
    start, stop = get_engine(arm.engine).profile_requests(arm)
    try:
        began_s = time.monotonic()
        await live.start(f"profile/{arm.name}", lambda elapsed_s, line: _launching(tell, arm, elapsed_s, line))
        tell(Ready(arm=arm.name, block=0, after_s=time.monotonic() - began_s))
        url = live.process.base_url

        async def told(request: ServerRequest) -> None:
            tell(Note(text=f"{arm.name}: {request.path}"))
            await tell_server(url, request)

        result = await run_load(
            Endpoint(url=url, model=live.model),
            load,
            questions.prompts,
            seed=seed_of(questions.seed, load.label),
            warmup_s=questions.warmup_s,
            window_s=seconds,
            on_window_start=lambda: told(start),
            on_window_end=lambda: told(stop),
        )
        if not result.steady:
            errors = (sample.error for sample in result.samples if sample.error is not None)
            first = next(errors, result.silence or "no answer in time")
            raise EngineError(f"arm {arm.name}: the load never became steady, so nothing was profiled ({first})")
        files = await _written(arm.profile_to)
    finally:
        await live.stop()
    if not files:
        raise EngineError(f"arm {arm.name}: the profiler wrote nothing into {arm.profile_to}; see the server's log")
    return Profiled(
        arm=arm.name,
        load=load.label,
        folder=str(arm.profile_to),
        files=files,
        seconds=seconds,
        num_tokens=tokens_in_window(result),
    )


def _launching(tell: Tell, arm: Arm, elapsed_s: float, line: str) -> None:
    tell(Launching(arm=arm.name, block=0, elapsed_s=elapsed_s, line=line))


async def _written(folder: Path) -> dict[str, int]:
    """The files there, once there are some and none has grown for a while."""
    until_s = time.monotonic() + WRITTEN_WITHIN_S
    seen, since_s = _files(folder), time.monotonic()
    while time.monotonic() < until_s and (not seen or time.monotonic() - since_s < QUIET_S):
        await asyncio.sleep(0.5)
        now = _files(folder)
        if now != seen:
            seen, since_s = now, time.monotonic()
    return seen


def _files(folder: Path) -> dict[str, int]:
    found: Sequence[Path] = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}
