"""kill -9 at random moments, the same command again each time: the same set of trials, none doubled, no process left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.experiment.stored_run import read_run
from breakeven.experiment.trial import Trial

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NUM_KILLS = 10
# The watchdog of a run has this long to end what the run owned.
WATCHDOG_S = 10.0

FAKE_PLAN = """
name: slow
engine: fake
launches: {min: 4, max: 4}
load: [{concurrency: 1}, {concurrency: 4}]
trial: {repeats: 3}
arms:
  plain: {}
  eagle: {speculation: {method: eagle3, drafter: random}, simulation: {joint: [0.7, 0.5, 0.3]}}
"""

LOCAL_PLAN = """
name: tiny
target: {target}
launches: {{min: 2, max: 2}}
max_running_requests: 2
num_threads: 1
workload: {{fixed_length: true, max_tokens: 24}}
load: [{{concurrency: 1}}, {{concurrency: 2}}]
trial: {{warmup_s: 0.1, window_s: 0.3, repeats: 3}}
side_by_side: true
arms:
  plain:
  ngram: {{speculation: {{method: ngram}}}}
"""


def keys(trials: list[Trial]) -> list[tuple[str, str, int, int]]:
    return sorted((trial.arm, trial.load.label, trial.block, trial.repeat) for trial in trials)


def expected_keys(num_blocks: int, num_repeats: int, arms: tuple[str, str]) -> list[tuple[str, str, int, int]]:
    return sorted(
        (arm, load, block, repeat)
        for arm in arms
        for load in ("c=1", "c=2" if "ngram" in arms else "c=4")
        for block in range(num_blocks)
        for repeat in range(num_repeats)
    )


def test_fake_engine(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(FAKE_PLAN)
    folder = tmp_path / "run"
    command = [sys.executable, str(Path(__file__).with_name("slow_fake_run.py")), str(tmp_path / "plan.yaml"), str(folder)]
    moments = random.Random(20)
    kept: list[int] = []
    for _ in range(NUM_KILLS):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            # a moment before the first trial, or within one of the first five
            for _ in range(moments.randint(1, 6)):
                assert process.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.05))
            process.kill()
        process.wait()
        # the first moment may lie before there is a run
        kept.append(len(read_run(folder).trials) if (folder / "plan.yaml").exists() else 0)
    assert kept == sorted(kept)
    assert 0 < kept[-1] < 48
    assert len(set(kept)) >= 3
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    record = read_run(folder)
    assert keys([trial for trial in record.trials if trial.valid]) == expected_keys(4, 3, ("plain", "eagle"))
    assert not record.interrupted
    assert len({trial.launch for trial in record.trials}) > 8


def test_embedded_engine(tmp_path: Path, tiny_model: Path, find_marked: Callable[[str], dict[int, str]]) -> None:
    (tmp_path / "plan.yaml").write_text(LOCAL_PLAN.format(target=tiny_model))
    folder = tmp_path / "runs" / "tiny"
    mark = f"BREAKEVEN_TEST={uuid.uuid4().hex}"
    environment = os.environ | dict([mark.split("=")]) | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "breakeven", "bench", str(tmp_path / "plan.yaml"), "--runs-dir", str(folder.parent)]
    moments = random.Random(7)
    killed_with_servers = 0
    try:
        for _ in range(NUM_KILLS):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            assert process.stderr is not None
            # while the command starts, while a server loads, or within the first trials: lines tell of servers and trials
            for _ in range(moments.randint(0, 5)):
                assert process.stderr.readline()
            time.sleep(moments.uniform(0.0, 0.5))
            killed_with_servers += any("drafter.serving" in line for line in find_marked(mark).values())
            process.kill()
            process.wait()
            process.stderr.close()
        # started again at once, while the watchdog of the run before may still be at work
        last = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert last.returncode == 0, last.stderr
        record = read_run(folder)
        valid = keys([trial for trial in record.trials if trial.valid])
        assert len(valid) == len(set(valid))
        # on a busy machine a trial can be void three times over: then its place is settled all the same
        voids = [(trial.arm, trial.launch, trial.attempt, trial.voids) for trial in record.trials if not trial.valid]
        assert sorted(set(keys(record.trials))) == expected_keys(2, 3, ("plain", "ngram"))
        assert len(valid) >= 12, voids
        assert not record.interrupted
        assert killed_with_servers >= 3
        assert (folder / "report.html").stat().st_size > 10_000
        deadline_s = time.monotonic() + WATCHDOG_S
        while (left := find_marked(mark)) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        assert left == {}
    finally:
        for pid in find_marked(mark):
            os.kill(pid, signal.SIGKILL)


def test_nothing_outlives_a_run_that_is_killed_and_never_started_again(
    tmp_path: Path, tiny_model: Path, find_marked: Callable[[str], dict[int, str]]
) -> None:
    (tmp_path / "plan.yaml").write_text(LOCAL_PLAN.format(target=tiny_model))
    mark = f"BREAKEVEN_TEST={uuid.uuid4().hex}"
    command = [sys.executable, "-m", "breakeven", "bench", str(tmp_path / "plan.yaml"), "--runs-dir", str(tmp_path)]
    process = subprocess.Popen(
        command, env=os.environ | dict([mark.split("=")]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline_s = time.monotonic() + 60
        while not any("drafter.serving" in line for line in find_marked(mark).values()):
            assert time.monotonic() < deadline_s, "no server was launched"
            time.sleep(0.05)
        time.sleep(1.0)
        process.kill()
        process.wait()
        assert find_marked(mark), "the watchdog and a server should be there just after the kill"
        deadline_s = time.monotonic() + WATCHDOG_S
        while find_marked(mark) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert find_marked(mark) == {}
    finally:
        for pid in find_marked(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_one_message_and_no_server(
    number: signal.Signals, tmp_path: Path, tiny_model: Path, find_marked: Callable[[str], dict[int, str]]
) -> None:
    (tmp_path / "plan.yaml").write_text(LOCAL_PLAN.format(target=tiny_model))
    mark = f"BREAKEVEN_TEST={uuid.uuid4().hex}"
    command = [sys.executable, "-m", "breakeven", "bench", str(tmp_path / "plan.yaml"), "--runs-dir", str(tmp_path)]
    process = subprocess.Popen(
        command, env=os.environ | dict([mark.split("=")]), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline_s = time.monotonic() + 60
        while not any("drafter.serving" in line for line in find_marked(mark).values()):
            assert time.monotonic() < deadline_s, "no server was launched"
            time.sleep(0.05)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130
        assert f"Stopping on {number.name}: ending the servers, finished trials are kept" in told
        assert told.count("Stopped; ") == 1
        assert "Traceback" not in told
        assert find_marked(mark) == {}
    finally:
        for pid in find_marked(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_run_is_one_message(number: signal.Signals, tmp_path: Path) -> None:
    # a plan that is a pipe nobody writes into: the command waits for it before it has begun anything
    plan = tmp_path / "plan.yaml"
    os.mkfifo(plan)
    command = [sys.executable, "-m", "breakeven", "bench", str(plan), "--runs-dir", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        opened = os.open(plan, os.O_WRONLY)  # returns once the command has the other end
        time.sleep(0.5)  # until it reads: a signal between the two calls is met only once the read returns
        process.send_signal(number)
        out, told = process.communicate(timeout=60)
        os.close(opened)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert told == f"breakeven: ended by {number.name}\n"
    assert not (tmp_path / "runs").exists()
