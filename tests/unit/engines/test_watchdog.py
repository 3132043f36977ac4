from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import breakeven
from breakeven.engines.ledger import WATCHDOG_PROGRAM
from breakeven.engines.ownership import Launch, ProcessId, identify, is_alive, now_in_start_units
from breakeven.engines.watchdog import launch_from_json, launch_to_json


def test_launches_survive_the_way_through_json() -> None:
    launch = Launch("a" * 32, ProcessId(7, 8), (ProcessId(9, 10),))
    assert launch_from_json(json.loads(json.dumps(launch_to_json(launch)))) == launch
    assert launch_from_json(json.loads(json.dumps(launch_to_json(Launch("a" * 32))))) == Launch("a" * 32)


@pytest.mark.parametrize(
    "fields",
    [
        {"mark": "short", "leader": None},
        {"mark": "a" * 32, "leader": [1]},
        {"mark": "a" * 32, "leader": [-1, 5]},
        {"mark": "a" * 32, "leader": [True, 5]},
        {"mark": "a" * 32, "members": {"1": 2}},
    ],
)
def test_what_is_not_a_launch_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        launch_from_json(fields)


def test_the_watchdog_imports_the_standard_library_only_and_starts_fast() -> None:
    source = str(Path(breakeven.__file__).parents[1])
    listing = "; import sys; print(sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    program = WATCHDOG_PROGRAM.replace("; sys.exit(main())", listing)
    command = [sys.executable, "-I", "-S", "-c", program, source]
    began_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert time.monotonic() - began_s < 2
    assert json.loads(done.stdout.replace("'", '"')) == ["__main__", "breakeven"]


def test_a_process_is_alive_only_under_its_own_start_time() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        seen = identify(child.pid)
        assert seen is not None
        assert is_alive(seen)
        assert abs(seen.started - now_in_start_units()) < 1000
        assert not is_alive(ProcessId(seen.pid, seen.started + 1))
    assert not is_alive(seen)
    assert identify(child.pid) is None
