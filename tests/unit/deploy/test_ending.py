from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from breakeven.deploy.ending import end_served
from breakeven.engines.base import LaunchCommand
from breakeven.engines.ledger import SERVERS_FILE, LaunchLedger, registered
from breakeven.engines.ownership import identify, is_alive
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.errors import StoreError, UsageError
from breakeven.experiment.events import Event, Note
from breakeven.experiment.measure import measure, set_aside
from breakeven.experiment.plan import parse_plan

STAND_IN = Path(__file__).parents[2] / "integration" / "engines" / "stand_in.py"


@contextmanager
def detached(folder: Path, *flags: str, num: int = 1) -> Iterator[list[ServerProcess]]:
    servers = []
    try:
        with LaunchLedger(folder) as ledger:
            for place in range(num):
                port = choose_port()
                command = LaunchCommand(argv=(sys.executable, str(STAND_IN), "--port", str(port), *flags))
                log = folder / "logs" / f"{place}.log"
                server = ServerProcess.start(command, name=f"arm{place}", port=port, log=log, ledger=ledger)
                servers.append(server)
                server.detach({"arm": f"arm{place}", "url": server.base_url})
        yield servers
    finally:
        for server in servers:
            if server.exit_code is None:
                os.kill(server.pid, signal.SIGKILL)
            server._popen.wait()


def test_ends_both_of_two_and_forgets_them(tmp_path: Path) -> None:
    with detached(tmp_path, num=2) as servers:
        identities = [identify(server.pid) for server in servers]
        assert all(identity is not None and is_alive(identity) for identity in identities)
        ended = end_served(tmp_path)
        assert [server.about["arm"] for server in ended] == ["arm0", "arm1"]
        assert all(process.pid in server.pids for process, server in zip(servers, ended, strict=True))
        assert not any(is_alive(identity) for identity in identities if identity is not None)
    assert registered(tmp_path).detached == ()
    assert end_served(tmp_path) == ()


def test_one_that_was_gone_already_is_told_so(tmp_path: Path) -> None:
    with detached(tmp_path) as servers:
        os.kill(servers[0].pid, signal.SIGKILL)
        servers[0]._popen.wait()
        (ended,) = end_served(tmp_path)
    assert (ended.pids, ended.gone_because) == ((), "was gone already")


def test_after_a_restart_no_process_is_touched(tmp_path: Path) -> None:
    with detached(tmp_path) as servers:
        file = tmp_path / SERVERS_FILE
        file.write_text(json.dumps(json.loads(file.read_text()) | {"boot": "another"}))
        (ended,) = end_served(tmp_path)
        assert (ended.pids, ended.gone_because) == ((), "went down when the machine restarted")
        assert servers[0].exit_code is None
    assert end_served(tmp_path) == ()


def test_one_of_another_machine_is_not_called_gone(tmp_path: Path) -> None:
    with detached(tmp_path):
        file = tmp_path / SERVERS_FILE
        content = json.loads(file.read_text()) | {"boot": "another"}
        content["detached"][0]["about"]["host"] = "elsewhere"
        file.write_text(json.dumps(content))
        with pytest.raises(UsageError, match="started on 'elsewhere'"):
            end_served(tmp_path)


def test_one_in_the_foreground_is_left_to_its_owner(tmp_path: Path) -> None:
    with LaunchLedger(tmp_path) as ledger:
        port = choose_port()
        command = LaunchCommand(argv=(sys.executable, str(STAND_IN), "--port", str(port)))
        server = ServerProcess.start(command, name="a", port=port, log=tmp_path / "a.log", ledger=ledger)
        try:
            with pytest.raises(UsageError, match=f"process {os.getpid()} owns"):
                end_served(tmp_path)
            assert server.exit_code is None
        finally:
            server.stop_now()


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="expected the folder of a run"):
        end_served(tmp_path / "nope")


FAKE = "name: p\nengine: fake\nload: [{concurrency: 1}]\nlaunches: {min: 1, max: 1}\narms: {plain: {}}\n"


def test_a_run_that_is_served_is_not_moved_away_from_its_server_and_measuring_beside_it_is_doubted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with detached(folder) as (server,):
        served = f"arm0 of this run is served at {server.base_url}"
        with pytest.raises(StoreError) as refused:
            set_aside(folder)
        assert str(refused.value) == f"{folder}: {served}; end it first: breakeven stop {folder}"
        told: list[Event] = []
        measure(parse_plan(FAKE, "plan.yaml"), folder, told.append)
        assert [event.text for event in told if isinstance(event, Note) and served in event.text]
        end_served(folder)
    assert set_aside(folder) == tmp_path / "run.old-1"
