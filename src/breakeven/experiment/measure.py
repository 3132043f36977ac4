"""The main job up to the verdict: check everything that can be checked, then carry the plan out in its run folder."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from breakeven.engines.base import Arm
from breakeven.engines.fake.truth import truth_of
from breakeven.engines.ledger import LaunchLedger, end_leftovers, registered
from breakeven.engines.registry import get_engine
from breakeven.errors import PromptsError, StoreError
from breakeven.experiment.curving import certain_points
from breakeven.experiment.events import Note, Tell
from breakeven.experiment.live import LiveArm, MakeLive, SimulatedArm
from breakeven.experiment.placement import lives_side_by_side
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.provenance import collect_provenance
from breakeven.experiment.run_folder import aside
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.runner import Outcome, carry_out
from breakeven.experiment.schedule import planned_steps
from breakeven.experiment.served import AttachedArm, LaunchedArm, Questions, shown_command
from breakeven.experiment.stopping import still_wanted
from breakeven.experiment.store import RunStore
from breakeven.loadgen.prompts import builtin_prompts, read_prompts
from breakeven.loadgen.samples import Prompt
from breakeven.units import format_bytes

__all__ = ["Budget", "budget", "check_arms", "check_disk", "commands", "measure", "run_prompts", "set_aside"]

# Samples and logs of a long run; a server with no room for its own files fails in stranger ways than this.
MIN_FREE_BYTES = 200_000_000
EXAMPLE_PORT = 20_000
SIDE_BY_SIDE = "side_by_side"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the plan costs at least, launching left out."""

    num_launches: int
    num_trials: int
    measuring_s: float


def measure(plan: Plan, folder: Path, tell: Tell, *, make_live: MakeLive | None = None) -> Outcome:
    """Measure what is left of `plan` into the run `folder`; nothing at all when it is finished.

    make_live: stands in for the engines (tests).

    Raises:
        BreakevenError: before anything is launched for what can be seen then; see `carry_out` for the rest.
    """
    prompts = run_prompts(plan)
    arms = plan.arms()
    check_arms(arms)
    check_disk(folder)
    with ExitStack() as closing:
        store = closing.enter_context(RunStore(folder, plan))
        if store.is_finished():
            tell(Note(text="This run is finished: nothing is measured again, here is its verdict (--fresh measures anew)"))
            return Outcome(interrupted=False, failed={})
        ended = end_leftovers(folder)
        if ended:
            tell(Note(text=f"Ended {len(ended)} processes that an earlier start of this run had left behind"))
        if served := _still_served(folder):
            tell(
                Note(text=f"{served}, on the machine that is measured here, which slows all arms (breakeven stop {folder} ends it)")
            )
        provenance = collect_provenance(arms) | {"prompts.fingerprint": _fingerprint(prompts)}
        provenance[SIDE_BY_SIDE] = "yes" if lives_side_by_side(plan, arms) else "no"
        store.begin(provenance)
        if kept := len(store.record().trials):
            tell(
                Note(text=f"Going on with {folder}: {kept} {'trial is' if kept == 1 else 'trials are'} kept from an earlier start")
            )
        # a resumed run keeps the order it began with, whatever memory is free today
        side_by_side = store.record().provenance[SIDE_BY_SIDE] == "yes"
        if make_live is None:
            make_live = _live_arms(plan, prompts, store, closing)
        return carry_out(plan, store, make_live, partial(still_wanted, curve=plan.curve), tell, side_by_side=side_by_side)


def commands(plan: Plan) -> list[tuple[str, str, str]]:
    """(arm, command, doubt) as they would be run; only the port differs. `doubt` is empty, or says what is unverified or refused.

    Raises:
        UsageError: an arm asks for something its engine cannot do.
    """
    shown = []
    for arm in plan.arms():
        if arm.url is not None or arm.engine == "fake":
            shown.append((arm.name, f"(attached to {arm.url})" if arm.url else SimulatedArm.command, ""))
            continue
        engine = get_engine(arm.engine)
        command = engine.launch_command(arm, EXAMPLE_PORT)
        refusal = engine.refusal(arm)
        doubt = f"will not be started: {refusal}" if refusal else command.doubt
        shown.append((arm.name, shown_command(command.argv, command.env), doubt))
    return shown


def budget(plan: Plan) -> Budget:
    """Launches, trials and seconds of the blocks that are certain."""
    certain = None if plan.curve is None else frozenset(certain_points(plan))
    turns = [turn for block in range(plan.launches.min) for turn in planned_steps(plan, block, certain, side_by_side=True)]
    attached = {arm.name for arm in plan.arms() if arm.url is not None}
    num_trials = sum(map(len, turns))
    num_launches = sum(len({step.arm for step in turn} - attached) for turn in turns)
    return Budget(
        num_launches=num_launches,
        num_trials=num_trials,
        measuring_s=math.fsum(plan.trial_s(step.load) for turn in turns for step in turn),
    )


def run_prompts(plan: Plan) -> tuple[Prompt, ...]:
    """The plan's prompts, of the kinds it asks for.

    Raises:
        PromptsError: the file cannot be read, or holds none of those kinds.
    """
    kinds = plan.workload.kinds or None
    if plan.workload.prompts == "builtin":
        return builtin_prompts(kinds)
    prompts = read_prompts(Path(plan.workload.prompts))
    kept = tuple(prompt for prompt in prompts if kinds is None or prompt.kind in kinds)
    if not kept:
        there = ", ".join(sorted({prompt.kind for prompt in prompts}))
        raise PromptsError(f"{plan.workload.prompts}: no prompt of kind {', '.join(kinds or ())}; there are {there}")
    return kept


def check_arms(arms: Sequence[Arm]) -> None:
    """Whether every arm can be launched as far as its engine can tell without starting anything.

    Raises:
        UsageError, CheckpointError, PlanError: an arm that cannot.
    """
    for arm in arms:
        if arm.engine == "fake":
            truth_of(arm)
        elif arm.url is None:
            get_engine(arm.engine).check(arm)


def set_aside(folder: Path) -> Path | None:
    """Move a run out of the way, keeping it; its new place, or None where there was none.

    Raises:
        StoreError: it is being measured or served, or cannot be moved.
    """
    if not folder.exists():
        return None
    # not under the feet of a run that is being measured, and not with servers of it still alive
    with RunLock(folder):
        end_leftovers(folder)
        if served := _still_served(folder):
            # moved aside with its folder, it would be found by nobody who asks for this run
            raise StoreError(f"{folder}: {served}; end it first: breakeven stop {folder}")
        return aside(folder)


def _still_served(folder: Path) -> str:
    """What `breakeven serve --detach` left running for the run; empty where that is nothing."""
    alive = [server.about for server in registered(folder).detached if server.members]
    return " and ".join(f"{about.get('arm', 'a server')} of this run is served at {about.get('url', 'unknown')}" for about in alive)


def _live_arms(plan: Plan, prompts: Sequence[Prompt], store: RunStore, closing: ExitStack) -> MakeLive:
    questions = Questions.of(plan, prompts)
    launched = any(arm.url is None and arm.engine != "fake" for arm in plan.arms())
    ledger = closing.enter_context(LaunchLedger(store.folder)) if launched else None

    def make_live(arm: Arm) -> LiveArm:
        if arm.engine == "fake":
            return SimulatedArm(arm, seed=plan.seed, window_s=plan.window_s)
        engine = get_engine(arm.engine)
        if arm.url is not None:
            return AttachedArm(arm, engine, questions)
        assert ledger is not None
        return LaunchedArm(arm, engine, questions, ledger=ledger, logs=store.logs, timeout_s=plan.start_timeout_s)

    return make_live


def check_disk(folder: Path) -> None:
    """
    Raises:
        StoreError: there is hardly any room where `folder` is, or is to be.
    """
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < MIN_FREE_BYTES:
        raise StoreError(f"{there}: {format_bytes(free)} free, at least {format_bytes(MIN_FREE_BYTES)} wanted for samples and logs")


def _fingerprint(prompts: Iterable[Prompt]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(repr((prompt.id, prompt.messages)).encode())
    return digest.hexdigest()[:16]
