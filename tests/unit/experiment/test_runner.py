"""The whole run on arms that need no process: orders, voids, deaths, failures, signals and resuming, in milliseconds."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.engines.base import Arm
from breakeven.errors import EngineDied, EngineError, LaunchError, StoreError
from breakeven.experiment.events import ArmFailed, Event, Note, TrialEnded, TrialStarted
from breakeven.experiment.live import LiveArm, Measured, SimulatedArm
from breakeven.experiment.measure import budget, measure
from breakeven.experiment.plan import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.runner import Outcome
from breakeven.experiment.schedule import MAX_ATTEMPTS, Step
from breakeven.experiment.store import RunStore
from breakeven.experiment.stored_run import read_run
from breakeven.loadgen.run import Progress


class Rig:
    """Simulated arms that can be told to fail, and a list of everything that happened to them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log: list[str] = []
        self.alive: set[int] = set()
        self.events: list[Event] = []
        self.refuse_start: Callable[[str, int], bool] = lambda arm, nth: False
        self.die: Callable[[Step, int], bool] = lambda step, nth: False
        self.silent: Callable[[Step, int], bool] = lambda step, nth: False
        self.before_trial: Callable[[int], None] = lambda nth: None
        self.starts: Counter[str] = Counter()
        self.num_measured = 0

    def make_live(self, arm: Arm) -> LiveArm:
        return _RiggedArm(self, arm)

    def run(self, folder: Path) -> Outcome:
        return measure(self.plan, folder, self.events.append, make_live=self.make_live)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


class _RiggedArm:
    command = "rigged"

    def __init__(self, rig: Rig, arm: Arm) -> None:
        self.rig, self.arm = rig, arm
        self.inner = SimulatedArm(arm, seed=rig.plan.seed, window_s=rig.plan.window_s)

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        self.rig.log.append(f"start {launch}")
        self.rig.starts[self.arm.name] += 1
        self.rig.alive.add(id(self))
        if self.rig.refuse_start(self.arm.name, self.rig.starts[self.arm.name]):
            raise LaunchError(f"arm {self.arm.name}: no such weights", log_tail=("Traceback", "boom"))
        return await self.inner.start(launch, on_wait)

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        self.rig.num_measured += 1
        self.rig.before_trial(self.rig.num_measured)
        await asyncio.sleep(0)
        if self.rig.die(step, self.rig.num_measured):
            raise EngineDied(f"arm {self.arm.name}: the server exited on SIGSEGV", log_tail=("segfault",))
        measured = await self.inner.measure(step, index, on_progress)
        if self.rig.silent(step, self.rig.num_measured):
            nothing = replace(measured.result, samples=(), steady=False, silence="1 request got nothing at all")
            return replace(measured, result=nothing)
        return measured

    async def stop(self) -> None:
        self.rig.log.append(f"stop {self.arm.name}")
        self.rig.alive.discard(id(self))


def keys(record: RunRecord) -> list[tuple[str, str, int, int]]:
    return [(trial.arm, trial.load.label, trial.block, trial.repeat) for trial in record.trials if trial.valid]


def test_a_plan_is_carried_out_once(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    assert rig.run(tmp_path / "run") == Outcome(interrupted=False, failed={})
    record = read_run(tmp_path / "run")
    assert len(keys(record)) == len(set(keys(record))) == 16
    assert not record.interrupted
    assert not rig.alive
    assert [line for line in rig.log if line.startswith("start")] == [
        "start plain/1",
        "start eagle/1",
        "start eagle/2",
        "start plain/2",
    ]
    numbers = [event.number for event in rig.events if isinstance(event, TrialStarted)]
    assert numbers == list(range(1, 17))
    assert {event.total for event in rig.events if isinstance(event, TrialStarted)} == {16}
    again = Rig(make_plan())
    assert again.run(tmp_path / "run") == Outcome(interrupted=False, failed={})
    assert again.log == []


def test_arms_in_turn_are_never_alive_together(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan("side_by_side: false"))
    rig.before_trial = lambda nth: rig.log.append(f"{len(rig.alive)} alive")
    rig.run(tmp_path / "run")
    assert {line for line in rig.log if line.endswith("alive")} == {"1 alive"}
    assert len(keys(read_run(tmp_path / "run"))) == 16


def test_launches_of_a_block_share_their_block_and_no_launch_spans_two(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    Rig(make_plan()).run(tmp_path / "run")
    blocks: dict[str, set[int]] = {}
    for trial in read_run(tmp_path / "run").trials:
        blocks.setdefault(trial.launch, set()).add(trial.block)
    assert blocks == {"plain/1": {0}, "eagle/1": {0}, "plain/2": {1}, "eagle/2": {1}}


def test_the_window_of_a_load_is_its_own_and_counts_in_what_is_left(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(launches="{min: 1, max: 1}", repeats=1)
    plan = plan.model_copy(update={"load": (plan.load[0].model_copy(update={"window_s": 40.0}), plan.load[1])})
    rig = Rig(plan)
    rig.run(tmp_path / "run")
    windows = {(trial.arm, trial.load.label): trial.window_s for trial in read_run(tmp_path / "run").trials}
    assert windows == {("plain", "c=1"): 40.0, ("plain", "c=4"): 10.0, ("eagle", "c=1"): 40.0, ("eagle", "c=4"): 10.0}
    left = [event.eta_s for event in rig.of(TrialStarted) if isinstance(event, TrialStarted)]
    assert left[0] - left[-1] in (60.0, 90.0)  # all but the last trial, which is of either load
    assert budget(plan).measuring_s == 100.0


def test_void_trials_are_kept_and_tried_again(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(arms="  broken: {simulation: {error_probability: 1.0}}", launches="{min: 1, max: 1}", repeats=1)
    rig = Rig(plan)
    outcome = rig.run(tmp_path / "run")
    trials = [trial for trial in read_run(tmp_path / "run").trials if trial.arm == "broken"]
    assert [(trial.load.label, trial.attempt) for trial in trials if trial.load.label == "c=1"] == [
        ("c=1", n) for n in range(MAX_ATTEMPTS)
    ]
    assert {void.code for trial in trials for void in trial.voids} >= {"errors"}
    assert outcome.failed == {}
    assert Rig(plan).run(tmp_path / "run") == outcome


def test_an_arm_that_never_gives_a_token_is_given_up_after_two_windows(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    rig.silent = lambda step, nth: step.arm == "eagle"
    outcome = rig.run(tmp_path / "run")
    record = read_run(tmp_path / "run")
    assert "2 windows and nothing to measure: not one token came in 10 s: 1 request got nothing at all" in outcome.failed["eagle"]
    assert [trial.voids[0].code for trial in record.trials if trial.arm == "eagle"] == ["no_tokens"] * 2
    assert sum(trial.arm == "plain" and trial.valid for trial in record.trials) == 8
    assert not rig.alive


def test_a_baseline_that_never_gives_a_token_ends_the_run(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    rig.silent = lambda step, nth: step.arm == "plain"
    with pytest.raises(EngineError, match="nothing can be compared"):
        rig.run(tmp_path / "run")
    assert not rig.alive


def test_an_arm_that_has_worked_is_not_given_up_for_its_silence(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan(repeats=1))
    spoken: set[str] = set()

    def silent(step: Step, nth: int) -> bool:
        first = step.arm not in spoken
        spoken.add(step.arm)
        return step.arm == "eagle" and not first

    rig.silent = silent
    assert rig.run(tmp_path / "run").failed == {}


def test_a_server_that_dies_once_is_launched_anew_in_the_same_block(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan(launches="{min: 1, max: 1}"))
    rig.die = lambda step, nth: nth == 3
    outcome = rig.run(tmp_path / "run")
    record = read_run(tmp_path / "run")
    assert outcome == Outcome(interrupted=False, failed={})
    assert len(keys(record)) == len(set(keys(record))) == 8
    [void] = [trial for trial in record.trials if not trial.valid]
    assert [reason.code for reason in void.voids] == ["server_died"]
    assert "SIGSEGV" in void.voids[0].detail
    retried = next(trial for trial in record.trials if trial.valid and trial.attempt == 1)
    assert (retried.arm, retried.launch, retried.block) == (void.arm, f"{void.arm}/1.2", 0)
    assert not rig.alive


def test_an_arm_that_keeps_dying_is_given_up_and_the_others_go_on(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan(arms="  third: {}"))
    rig.die = lambda step, nth: step.arm == "eagle"
    outcome = rig.run(tmp_path / "run")
    record = read_run(tmp_path / "run")
    assert list(outcome.failed) == ["eagle"]
    assert record.failures.keys() == {"eagle"}
    assert f"its server died {MAX_ATTEMPTS} times" in record.failures["eagle"]
    assert Counter(arm for arm, *_ in keys(record)) == {"plain": 8, "third": 8}
    assert [event.arm for event in rig.of(ArmFailed)] == ["eagle"]  # type: ignore[union-attr]
    assert not rig.alive
    # mended, the same command measures what is missing and nothing else
    mended = Rig(rig.plan)
    assert mended.run(tmp_path / "run") == Outcome(interrupted=False, failed={})
    record = read_run(tmp_path / "run")
    assert Counter(arm for arm, *_ in keys(record)) == {"plain": 8, "third": 8, "eagle": 8}
    assert mended.starts == {"eagle": 2}
    assert record.failures == {}


def test_an_arm_that_does_not_start_is_given_up_with_its_reason(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    rig.refuse_start = lambda arm, nth: arm == "eagle"
    outcome = rig.run(tmp_path / "run")
    assert outcome.failed == {"eagle": "arm eagle: no such weights"}
    assert rig.starts["eagle"] == 1
    assert {arm for arm, *_ in keys(read_run(tmp_path / "run"))} == {"plain"}
    assert not rig.alive


def test_an_arm_that_was_ready_before_gets_a_second_chance(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    rig.refuse_start = lambda arm, nth: arm == "eagle" and nth == 2
    assert rig.run(tmp_path / "run").failed == {}
    assert rig.starts["eagle"] == 3
    assert any("trying once more" in event.text for event in rig.events if isinstance(event, Note))
    assert len(keys(read_run(tmp_path / "run"))) == 16


def test_without_the_baseline_the_run_ends_and_nothing_is_left(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    rig.refuse_start = lambda arm, nth: arm == "plain"
    with pytest.raises(EngineError, match="no such weights\nWithout the baseline 'plain' nothing can be compared"):
        rig.run(tmp_path / "run")
    assert not rig.alive
    assert read_run(tmp_path / "run").interrupted
    rig.refuse_start = lambda arm, nth: False
    assert rig.run(tmp_path / "run") == Outcome(interrupted=False, failed={})
    assert len(keys(read_run(tmp_path / "run"))) == 16


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_servers_and_keeps_trials(tmp_path: Path, make_plan: Callable[..., Plan], number: signal.Signals) -> None:
    rig = Rig(make_plan())

    def interrupt(nth: int) -> None:
        if nth == 6:
            os.kill(os.getpid(), number)

    rig.before_trial = interrupt
    outcome = rig.run(tmp_path / "run")
    assert outcome.interrupted
    record = read_run(tmp_path / "run")
    assert record.interrupted
    assert 5 <= len(keys(record)) <= 6
    assert not rig.alive
    assert Rig(rig.plan).run(tmp_path / "run") == Outcome(interrupted=False, failed={})
    assert len(set(keys(read_run(tmp_path / "run")))) == len(keys(read_run(tmp_path / "run"))) == 16


class Killed(BaseException):
    """Stands for kill -9 where no process is needed: nothing of ours handles it, and stopping is skipped."""


def run_killed_at(plan: Plan, folder: Path, killed_at: int) -> RunRecord:
    rig = Rig(plan)

    def kill(nth: int) -> None:
        if nth == killed_at:
            raise Killed

    rig.before_trial = kill
    with pytest.raises(Killed):
        rig.run(folder)
    assert len(keys(read_run(folder))) == killed_at - 1
    assert Rig(plan).run(folder) == Outcome(interrupted=False, failed={})
    return read_run(folder)


@pytest.mark.parametrize("side_by_side", ["true", "false"])
def test_killed_at_any_trial_the_run_ends_with_the_same_set(
    tmp_path: Path, make_plan: Callable[..., Plan], side_by_side: str
) -> None:
    plan = make_plan(f"side_by_side: {side_by_side}", repeats=1)
    Rig(plan).run(tmp_path / "whole")
    whole = sorted(keys(read_run(tmp_path / "whole")))
    assert len(whole) == 8
    for killed_at in range(1, 9):
        record = run_killed_at(plan, tmp_path / f"killed-{killed_at}", killed_at)
        assert sorted(keys(record)) == whole
        assert not record.interrupted


def test_killed_in_a_block_that_an_open_verdict_asked_for(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    noisy = "  close: {simulation: {cost_ratio: 0.99, launch_sd: 0.1}}"
    plan = make_plan(arms=noisy, launches="{min: 2, max: 3}", repeats=1)
    # 12 trials in two blocks, then close and plain at both load points, eagle at none
    record = run_killed_at(plan, tmp_path / "run", 14)
    assert len(keys(record)) == len(set(keys(record)))
    assert {key for key in keys(record) if key[2] == 2} >= {("close", "c=1", 2, 0), ("plain", "c=1", 2, 0)}
    assert not record.interrupted


def test_a_full_disk_ends_the_run_cleanly(tmp_path: Path, make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_plan())
    add_trial = RunStore.add_trial

    def full(store: RunStore, trial: object) -> None:
        if rig.num_measured == 4:
            raise StoreError("the disk is full")
        add_trial(store, trial)  # type: ignore[arg-type]

    monkeypatch.setattr(RunStore, "add_trial", full)
    with pytest.raises(StoreError, match="the disk is full"):
        rig.run(tmp_path / "run")
    assert not rig.alive
    assert len(keys(read_run(tmp_path / "run"))) == 3


def test_blocks_are_added_while_the_verdict_is_open(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    noisy = "  close: {simulation: {cost_ratio: 0.99, launch_sd: 0.1}}"
    rig = Rig(make_plan(arms=noisy, launches="{min: 2, max: 4}", repeats=1))
    rig.run(tmp_path / "run")
    blocks = {name: {block for arm, _, block, _ in keys(read_run(tmp_path / "run")) if arm == name} for name in ("plain", "close")}
    assert blocks == {"plain": {0, 1, 2, 3}, "close": {0, 1, 2, 3}}
    # what is left of a block that was added is a trial at least
    added = [event for event in rig.of(TrialStarted) if isinstance(event, TrialStarted) and event.step.block >= 2]
    assert added
    assert all(event.eta_s >= rig.plan.trial_s(event.step.load) for event in added)


def test_what_events_show(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rig = Rig(make_plan())
    rig.run(tmp_path / "run")
    started = [event for event in rig.events if isinstance(event, TrialStarted)]
    assert started[0].eta_s > started[-1].eta_s >= rig.plan.trial.window_s
    ended = [event for event in rig.events if isinstance(event, TrialEnded)]
    assert all(event.tokens_per_s > 0 for event in ended)
    assert replace(started[0].step, order=0).order == 0
