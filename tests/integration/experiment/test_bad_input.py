"""What goes wrong with real servers: one clear message, the right exit code, nothing lost, nothing left running."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from breakeven.errors import EngineError
from breakeven.experiment import served
from breakeven.experiment.measure import measure
from breakeven.experiment.plan import load_plan
from breakeven.experiment.stored_run import read_run

pytestmark = pytest.mark.integration

PLAN = """
name: tiny
target: {target}
launches: {{min: 1, max: 1}}
max_running_requests: 2
num_threads: 1
workload: {{fixed_length: true, max_tokens: 24}}
load: [{{concurrency: 1}}]
trial: {{warmup_s: 0.1, window_s: 0.5, repeats: {repeats}}}
side_by_side: true
arms:
  plain:
  ngram: {{speculation: {{method: ngram}}{more}}}
"""


class Bench:
    """One `breakeven bench` of its own, marked so that everything it starts can be found."""

    def __init__(self, folder: Path, find: Callable[[str], dict[int, str]]) -> None:
        self.folder = folder
        self.run = folder / "runs" / "tiny"
        self.mark = f"BREAKEVEN_TEST={uuid.uuid4().hex}"
        self._find = find

    def processes(self) -> dict[int, str]:
        return self._find(self.mark)

    def start(self, limit_bytes: int | None = None) -> subprocess.Popen[str]:
        def limit() -> None:
            assert limit_bytes is not None
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

        return subprocess.Popen(
            [sys.executable, "-m", "breakeven", "bench", "plan.yaml"],
            cwd=self.folder,
            env=os.environ | dict([self.mark.split("=")]) | {"BREAKEVEN_CACHE": str(self.folder / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=None if limit_bytes is None else limit,
        )

    def ends(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Exit code and everything said; nothing may be left running."""
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in out + err.replace("Traceback (most recent call last):\n  ", "")
        assert self.processes() == {}
        return process.returncode, " ".join((out + err).split())

    def wait_for(self, condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        deadline_s = time.monotonic() + 90
        while not condition():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def num_trials(self) -> int:
        return len(read_run(self.run).trials) if (self.run / "plan.yaml").exists() else 0


@pytest.fixture
def bench(tmp_path: Path, find_marked: Callable[[str], dict[int, str]]) -> Iterator[Bench]:
    bench = Bench(tmp_path, find_marked)
    yield bench
    for pid in bench.processes():
        os.kill(pid, signal.SIGKILL)


def write_plan(bench: Bench, target: Path, *, more: str = "", repeats: int = 2) -> None:
    (bench.folder / "plan.yaml").write_text(PLAN.format(target=target, more=more, repeats=repeats))


def test_missing_and_truncated_models(bench: Bench, tiny_model: Path, tmp_path: Path) -> None:
    write_plan(bench, tmp_path / "absent")
    code, said = bench.ends(bench.start())
    assert (code, "expected a model folder, demo:NAME or a hub id" in said) == (2, True), said
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    write_plan(bench, broken)
    code, said = bench.ends(bench.start())
    assert (code, "truncated" in said) == (2, True), said
    assert not bench.run.exists()


def test_an_arm_that_dies_while_loading_leaves_the_others_their_verdict(bench: Bench, tiny_model: Path) -> None:
    write_plan(bench, tiny_model, more=", extra_flags: ['--no-such-flag']")
    code, said = bench.ends(bench.start())
    assert code == 3
    assert "ngram is given up" in said
    assert "--no-such-flag" in said
    assert (bench.run / "report.html").is_file()
    assert {trial.arm for trial in read_run(bench.run).trials} == {"plain"}


def test_a_server_killed_in_mid_trial_is_launched_anew(bench: Bench, tiny_model: Path) -> None:
    write_plan(bench, tiny_model, repeats=6)
    process = bench.start()
    bench.wait_for(lambda: bench.num_trials() >= 2, process)
    servers = [pid for pid, line in bench.processes().items() if "--method ngram" in line]
    os.kill(servers[0], signal.SIGKILL)
    code, said = bench.ends(process)
    assert code == 0, said
    record = read_run(bench.run)
    assert any(void.code == "server_died" for trial in record.trials for void in trial.voids), said
    assert "server_died" in said
    assert {trial.launch for trial in record.trials if trial.arm == "ngram"} == {"ngram/1", "ngram/1.2"}
    settled = {(trial.arm, trial.repeat) for trial in record.trials}
    assert len(settled) == 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_keep_trials_and_say_how_to_go_on(bench: Bench, tiny_model: Path, number: signal.Signals) -> None:
    write_plan(bench, tiny_model, repeats=30)
    process = bench.start()
    bench.wait_for(lambda: bench.num_trials() >= 2, process)
    process.send_signal(number)
    code, said = bench.ends(process)
    assert code == 130
    assert "The same command goes on from there" in said
    assert 2 <= bench.num_trials() < 60


def test_ctrl_c_while_a_server_loads(bench: Bench, tiny_model: Path) -> None:
    write_plan(bench, tiny_model)
    process = bench.start()
    bench.wait_for(lambda: any("drafter.serving" in line for line in bench.processes().values()), process)
    process.send_signal(signal.SIGINT)
    code, _ = bench.ends(process)
    assert code == 130


def test_a_full_disk_ends_the_run_and_the_same_command_goes_on(bench: Bench, tiny_model: Path) -> None:
    write_plan(bench, tiny_model, repeats=4)
    code, said = bench.ends(bench.start(limit_bytes=70_000))
    assert (code, "the disk is full or a limit on file sizes is reached" in said) == (2, True), said
    before = bench.num_trials()
    code, said = bench.ends(bench.start())
    assert code == 0, said
    assert bench.num_trials() >= max(8, before)


def test_a_port_taken_in_the_meantime(bench: Bench, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plan(bench, tiny_model)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(served, "choose_port", lambda: port)
        monkeypatch.setenv(*bench.mark.split("="))
        with pytest.raises(EngineError, match=f"cannot listen on 127.0.0.1:{port}"):
            measure(load_plan(bench.folder / "plan.yaml"), bench.run, lambda event: None)
    monkeypatch.undo()
    assert {pid for pid in bench.processes() if pid != os.getpid()} == set()


def test_an_attached_server_is_measured_and_left_alone(bench: Bench, tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "breakeven.drafter.serving", "--model", str(tiny_model), "--port", str(port), "--num-threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s and not _answers(port):
            time.sleep(0.1)
        (bench.folder / "plan.yaml").write_text(
            f"name: tiny\nlaunches: {{min: 1, max: 1}}\nworkload: {{fixed_length: true, max_tokens: 24}}\n"
            f"load: [{{concurrency: 2}}]\ntrial: {{warmup_s: 0.1, window_s: 0.5, repeats: 3}}\n"
            f"arms: {{plain: {{url: 'http://127.0.0.1:{port}'}}}}\n"
        )
        code, said = bench.ends(bench.start())
        assert code == 0, said
        record = read_run(bench.run)
        assert len({trial.repeat for trial in record.trials}) == 3
        assert any(trial.valid and trial.counters is not None for trial in record.trials)
        assert server.poll() is None
    finally:
        server.terminate()
        server.wait(timeout=20)
    code, said = bench.ends(bench.start())
    assert code == 0  # finished: shown at once, the server is not asked
    shutil.rmtree(bench.run)
    code, said = bench.ends(bench.start())
    assert (code, "does not answer" in said) == (3, True), said


def _answers(port: int) -> bool:
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as response:
            return response.status == 200
    except OSError:
        return False
