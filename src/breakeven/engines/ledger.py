"""What a run has launched: told to its watchdog and written to `servers.json`, so that nothing outlives the run unseen.

The watchdog ends the servers of a run that was killed; the file is for the next start, in case both were killed (a power cut, a
container that went away). Detached servers stay in the file, marked so, and are nobody's to end but the user's.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from breakeven.engines.ownership import Launch, ProcessId, boot_id, end_launches, identify, is_alive, members_of
from breakeven.engines.watchdog import launch_from_json, launch_to_json
from breakeven.errors import EngineError, StoreError

__all__ = ["SERVERS_FILE", "LaunchLedger", "end_leftovers"]

SERVERS_FILE = "servers.json"
FORMAT = 1
LEFTOVER_TERM_S, LEFTOVER_KILL_S = 5.0, 5.0
# -I and -S: neither the user's environment nor site-packages delay it; only what lies beside breakeven can be imported.
WATCHDOG_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from breakeven.engines.watchdog import main; sys.exit(main())"


class LaunchLedger:
    """Open for as long as the run: `with LaunchLedger(run_folder) as ledger: ...`.

    Leaving the block, or dying in any way, hands what is still owned to the watchdog, which ends it.
    """

    def __init__(self, run_folder: Path) -> None:
        self._file = run_folder / SERVERS_FILE
        self._log = run_folder / "logs" / "watchdog.log"
        self._owned: dict[str, Launch] = {}
        self._detached: dict[str, Launch] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._detached = {launch.mark: launch for launch in _read(self._file).detached if launch.leader and is_alive(launch.leader)}
        self._write()
        self._start_watchdog()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        watchdog = self._watchdog
        if watchdog is None:
            return
        self._watchdog = None
        if watchdog.stdin is not None:
            with contextlib.suppress(OSError):
                watchdog.stdin.close()
        watchdog.wait()
        self._owned.clear()
        with contextlib.suppress(StoreError):
            self._write()

    def own(self, launch: Launch) -> None:
        """Take on a launch, or replace what was known of it. Called before the process exists and again when it does.

        Raises:
            StoreError: `servers.json` cannot be written, so nothing should be launched.
        """
        self._owned[launch.mark] = launch
        self._tell({"own": launch_to_json(launch)})
        self._write()

    def forget(self, mark: str) -> None:
        """The launch is gone and proved so. A full disk does not get in the way: a stale entry does no harm."""
        self._owned.pop(mark, None)
        self._tell({"forget": mark})
        with contextlib.suppress(StoreError):
            self._write()

    def detach(self, mark: str) -> None:
        """Leave the launch running when the run ends; the user ends it.

        Raises:
            StoreError: `servers.json` cannot be written.
        """
        self._detached[mark] = self._owned.pop(mark)
        self._write()
        self._tell({"forget": mark})

    def _start_watchdog(self) -> None:
        import breakeven

        source = str(Path(breakeven.__file__).parents[1])
        # no -S without /proc: the watchdog needs psutil there
        isolation = ("-I", "-S") if Path("/proc/self/stat").exists() else ("-I",)
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:
                self._watchdog = subprocess.Popen(
                    [sys.executable, *isolation, "-c", WATCHDOG_PROGRAM, source],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                )
        except OSError as error:
            raise StoreError(
                f"{self._log}: cannot start the watchdog ({error.strerror}); check the disk and permissions"
            ) from error
        assert self._watchdog.stdout is not None
        with self._watchdog.stdout as answer:
            if answer.readline() != b"watching\n":
                raise EngineError(f"the watchdog did not start; see {self._log}. Without it servers could outlive the run")
        for launch in self._owned.values():
            self._tell({"own": launch_to_json(launch)})

    def _tell(self, message: Mapping[str, object]) -> None:
        if self._watchdog is None or self._watchdog.stdin is None:
            raise EngineError("the launch ledger is closed: servers are launched inside its `with` block")
        try:
            self._watchdog.stdin.write(json.dumps(message).encode() + b"\n")
            self._watchdog.stdin.flush()
        except OSError:  # somebody ended the watchdog: a new one is told everything
            with contextlib.suppress(OSError):
                self._watchdog.stdin.close()
            self._watchdog.wait()
            self._start_watchdog()

    def _write(self) -> None:
        content = {
            "format": FORMAT,
            "boot": boot_id(),
            "run": identify(os.getpid()),
            "owned": [launch_to_json(launch) for launch in self._owned.values()],
            "detached": [launch_to_json(launch) for launch in self._detached.values()],
        }
        partial = self._file.with_suffix(".partial")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            partial.replace(self._file)
        except OSError as error:
            raise StoreError(f"{self._file}: cannot be written ({error.strerror}); check the disk and permissions") from error


class _Servers:
    """`servers.json` as read; empty where it is missing, of another boot or damaged: then nothing in it can be verified."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        valid = content.get("format") == FORMAT and content.get("boot") == boot_id()
        run = content.get("run") if valid else None
        self.run = ProcessId(*run) if isinstance(run, list) and len(run) == 2 else None
        self.owned = _launches(content.get("owned")) if valid else []
        self.detached = _launches(content.get("detached")) if valid else []


def end_leftovers(run_folder: Path) -> frozenset[ProcessId]:
    """End what an earlier start of this run left behind and return which processes those were. Call it before `LaunchLedger`.

    A process is touched only when pid and start time match what was written in this boot, when it carries the launch's mark, or
    when it descends from one of those. A run that is still alive is left alone, and so are detached servers.

    Raises:
        EngineError: something could not be ended.
    """
    servers = _read(run_folder / SERVERS_FILE)
    if not servers.owned or (servers.run is not None and is_alive(servers.run)):
        return frozenset()
    found = frozenset[ProcessId]().union(*(members_of(launch, reserved_until=0) for launch in servers.owned))
    survivors = end_launches(servers.owned, term_s=LEFTOVER_TERM_S, kill_s=LEFTOVER_KILL_S, reserved_until=0)
    if survivors:
        pids = ", ".join(str(process.pid) for process in sorted(survivors))
        raise EngineError(f"servers of an earlier start of this run survive SIGKILL (processes {pids}): end them, then start again")
    return found


def _launches(entries: object) -> list[Launch]:
    launches = []
    for entry in entries if isinstance(entries, list) else []:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            launches.append(launch_from_json(entry))
    return launches


def _read(file: Path) -> _Servers:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = {}
    return _Servers(content if isinstance(content, dict) else {})
