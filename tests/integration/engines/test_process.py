from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from breakeven.engines.base import LaunchCommand
from breakeven.engines.ledger import LaunchLedger, end_leftovers
from breakeven.engines.ownership import FOREVER, MARK, Launch, ProcessId, identify, is_alive, members_of
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.errors import EngineDied, EngineError, LaunchError, StoreError, UsageError

pytestmark = pytest.mark.integration

STAND_IN = Path(__file__).with_name("stand_in.py")
RUN = Path(__file__).with_name("run_and_sleep.py")
WORKERS = ("--worker", "group", "--worker", "session", "--worker", "session-renamed", "--worker", "group-unmarked")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LaunchLedger]:
    with LaunchLedger(tmp_path / "run") as opened:
        yield opened


@pytest.fixture
def start(ledger: LaunchLedger, tmp_path: Path) -> Callable[..., ServerProcess]:
    def start_stand_in(*flags: str) -> ServerProcess:
        port = choose_port()
        argv = (sys.executable, str(STAND_IN), "--port", str(port), "--pids", str(tmp_path / "pids"), *flags)
        return ServerProcess.start(LaunchCommand(argv=argv), name="plain", port=port, log=tmp_path / "plain.log", ledger=ledger)

    return start_stand_in


def explain(tail: object, code: int | None) -> str | None:
    return f"Known fault, code {code}." if "no such layer" in str(tail) else None


async def ready(server: ServerProcess, timeout_s: float = 30) -> float:
    return await server.wait_ready("/health", explain, timeout_s=timeout_s)


def read_pids(file: Path, deadline_s: float = 20) -> list[ProcessId]:
    began_s = time.monotonic()
    while not file.exists():
        assert time.monotonic() - began_s < deadline_s, "the stand-in never started"
        time.sleep(0.02)
    processes = [identify(int(pid)) for pid in file.read_text().split()]
    return [process for process in processes if process is not None]


def seconds_until_gone(processes: list[ProcessId], deadline_s: float) -> float:
    began_s = time.monotonic()
    while any(is_alive(process) for process in processes):
        assert time.monotonic() - began_s < deadline_s, f"still there: {[p for p in processes if is_alive(p)]}"
        time.sleep(0.05)
    return time.monotonic() - began_s


async def test_ready_then_stopped_with_nothing_left(start: Callable[..., ServerProcess], tmp_path: Path) -> None:
    lines: list[str] = []
    server = start("--load-s", "0.5", *WORKERS)
    elapsed_s = await server.wait_ready("/health", explain, timeout_s=30, progress=lambda _s, line: lines.append(line))
    assert elapsed_s >= 0.5
    assert "loading the model" in lines
    processes = read_pids(tmp_path / "pids")
    assert len(processes) == 5
    server.check_alive()
    stopped = await server.stop(term_s=0.5)
    assert stopped.exit_code == -signal.SIGTERM
    assert not any(is_alive(process) for process in processes)
    assert (await server.stop()).took_s == 0
    assert json.loads((tmp_path / "run" / "servers.json").read_text())["owned"] == []


async def test_ignoring_sigterm_ends_in_sigkill(start: Callable[..., ServerProcess]) -> None:
    server = start("--ignore-term")
    await ready(server)
    stopped = await server.stop(term_s=0.3)
    assert stopped.exit_code == -signal.SIGKILL
    assert 0.3 <= stopped.took_s < 3


async def test_dying_while_loading_is_told_at_once_with_the_log_and_the_reason(start: Callable[..., ServerProcess]) -> None:
    server = start("--die-loading", "--worker", "group")
    with pytest.raises(LaunchError, match=r"code 7 .*Known fault, code 7\.") as caught:
        await ready(server, timeout_s=60)
    assert caught.value.log_tail == ("loading the model", "ValueError: no such layer")
    assert (await server.stop(term_s=0.2)).exit_code == 7


async def test_too_slow_is_an_error_that_says_so(start: Callable[..., ServerProcess]) -> None:
    server = start("--load-s", "60")
    with pytest.raises(LaunchError, match=r"not ready after .*nothing listens yet"):
        await ready(server, timeout_s=0.7)
    await server.stop()


async def test_dying_in_mid_trial_is_noticed(start: Callable[..., ServerProcess]) -> None:
    server = start()
    await ready(server)
    server.check_alive()
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(aiohttp.ClientError):
            await session.get(server.base_url + "/die")
    while server.exit_code is None:
        await asyncio.sleep(0.02)
    with pytest.raises(EngineDied, match="arm plain: the server exited with code 9 while it was being measured"):
        server.check_alive()
    await server.stop()


async def test_a_dead_leader_stays_unreaped_until_its_workers_are_gone(start: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server = start("--worker", "group-unmarked")
    await ready(server)
    processes = read_pids(tmp_path / "pids")
    os.kill(server.pid, signal.SIGKILL)
    while server.exit_code is None:
        await asyncio.sleep(0.02)
    assert server.exit_code == -signal.SIGKILL
    assert psutil.Process(server.pid).status() == psutil.STATUS_ZOMBIE
    assert any(is_alive(process) for process in processes)
    await server.stop(term_s=0.2)
    assert not any(is_alive(process) for process in processes)
    assert not psutil.pid_exists(server.pid)


def test_a_program_that_does_not_exist(ledger: LaunchLedger, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"cannot start 'no-such-engine' .*installed"):
        ServerProcess.start(LaunchCommand(argv=("no-such-engine",)), name="a", port=1, log=tmp_path / "a.log", ledger=ledger)


def test_a_log_that_cannot_be_written(ledger: LaunchLedger, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        ServerProcess.start(LaunchCommand(argv=("true",)), name="a", port=1, log=tmp_path / "file" / "a.log", ledger=ledger)


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} is taken by .*process {os.getpid()}"):
            choose_port(port)
    assert choose_port(port) == port


class Run:
    """A process that owns a stand-in server, to be killed."""

    def __init__(self, folder: Path, wait: str, *flags: str) -> None:
        self.folder = folder
        pids = folder.with_suffix(".pids")
        self.popen = subprocess.Popen([sys.executable, RUN, folder, pids, wait, *flags], stdout=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("started"), line
        self.url = line.split()[1]
        self.processes = read_pids(pids)
        self.watchdog = next(
            child for child in psutil.Process(self.popen.pid).children() if "engines.watchdog" in " ".join(child.cmdline())
        )

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout is not None
        self.popen.stdout.close()


def test_kill_9_of_the_run_ends_everything_within_ten_seconds(tmp_path: Path) -> None:
    run, bystander = Run(tmp_path / "run", "ready", "--ignore-term", *WORKERS), Run(tmp_path / "other", "ready")
    watchdog = ProcessId(*identify(run.watchdog.pid) or ())
    assert run.watchdog.memory_info().rss < 25e6
    run.kill()
    took_s = seconds_until_gone(run.processes, 10)
    print(f"all {len(run.processes)} gone {took_s:.1f} s after kill -9")
    seconds_until_gone([watchdog], 5)
    assert all(is_alive(process) for process in bystander.processes), "another run was harmed"
    bystander.kill()
    seconds_until_gone(bystander.processes, 10)
    assert "all ended" in (tmp_path / "run" / "logs" / "watchdog.log").read_text()


def test_kill_9_while_the_server_is_being_started(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", "launch", "--load-s", "60")
    run.kill()
    seconds_until_gone(run.processes, 10)


def test_detached_servers_outlive_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", "detach")
    watchdog = identify(run.watchdog.pid)
    assert watchdog is not None
    run.kill()
    seconds_until_gone([watchdog], 10)
    try:
        assert all(is_alive(process) for process in run.processes)
        assert end_leftovers(run.folder) == frozenset()
        assert all(is_alive(process) for process in run.processes)
    finally:
        for process in run.processes:
            os.kill(process.pid, signal.SIGKILL)


def test_the_next_start_ends_what_both_killed_left_behind(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", "ready", *WORKERS)
    assert end_leftovers(run.folder) == frozenset(), "a run that is alive was touched"
    run.watchdog.kill()
    run.kill()
    time.sleep(0.3)
    assert all(is_alive(process) for process in run.processes)
    assert end_leftovers(run.folder) == set(run.processes)
    assert not any(is_alive(process) for process in run.processes)


def test_a_recycled_pid_is_not_touched(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        seen = identify(stranger.pid)
        assert seen is not None
        launch = Launch("0" * 32, ProcessId(seen.pid, seen.started - 100))
        with LaunchLedger(tmp_path) as ledger:
            ledger.own(launch)
            content = (tmp_path / "servers.json").read_text()
        stranger_alive_after_watchdog = is_alive(seen)
        dead = json.loads(content) | {"run": [2**22 - 1, 1]}
        (tmp_path / "servers.json").write_text(json.dumps(dead))
        assert end_leftovers(tmp_path) == frozenset()
        assert stranger_alive_after_watchdog
        assert is_alive(seen)
    finally:
        stranger.kill()
        stranger.wait()


def test_servers_of_another_boot_are_not_touched(tmp_path: Path, start: Callable[..., ServerProcess]) -> None:
    server = start()
    file = tmp_path / "run" / "servers.json"
    other = tmp_path / "other"
    other.mkdir()
    (other / "servers.json").write_text(json.dumps(json.loads(file.read_text()) | {"boot": "another", "run": [2**22 - 1, 1]}))
    assert end_leftovers(other) == frozenset()
    server.check_alive()
    server.stop_now()


async def test_a_watchdog_that_was_killed_is_replaced(ledger: LaunchLedger, start: Callable[..., ServerProcess]) -> None:
    def watchdogs() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if "engines.watchdog" in " ".join(child.cmdline())]

    [first] = watchdogs()
    first.kill()
    first.wait()
    server = start()
    [second] = watchdogs()
    assert second.pid != first.pid
    await server.stop()


def test_leaving_the_ledger_ends_what_was_not_stopped(tmp_path: Path) -> None:
    with LaunchLedger(tmp_path) as ledger:
        argv = (sys.executable, str(STAND_IN), "--pids", str(tmp_path / "pids"))
        server = ServerProcess.start(LaunchCommand(argv=argv), name="a", port=1, log=tmp_path / "a.log", ledger=ledger)
        processes = read_pids(tmp_path / "pids")
    assert not any(is_alive(process) for process in processes)
    assert server.exit_code is not None
    server._popen.wait()
    with pytest.raises(EngineError, match="inside its `with` block"):
        ledger.own(Launch("0" * 32))


def test_a_marked_ancestor_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breakeven started from inside a server that another Breakeven started carries that one's mark."""
    program = f"""
import os
from breakeven.engines.ownership import FOREVER, Launch, identify, members_of
mine = members_of(Launch(os.environ["{MARK}"]), FOREVER)
assert identify(os.getpid()) not in mine, mine
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, MARK: "1" * 32})


def test_without_proc_psutil_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = start(*WORKERS)
    processes = read_pids(tmp_path / "pids")
    monkeypatch.setattr("breakeven.engines.ownership.PROC", Path("/nowhere"))
    leader = identify(server.pid)
    found = members_of(Launch(server._launch.mark, leader), FOREVER)
    assert {process.pid for process in found} == {process.pid for process in processes}
    monkeypatch.undo()
    server.stop_now(term_s=0.2)
