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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from breakeven.engines.ownership import Launch, ProcessId, boot_id, end_launches, identify, is_alive, members_of
from breakeven.engines.watchdog import launch_from_json, launch_to_json
from breakeven.errors import EngineError, StoreError

__all__ = ["SERVERS_FILE", "DetachedServer", "LaunchLedger", "Registered", "end_leftovers", "forget_ended", "registered"]

SERVERS_FILE = "servers.json"
FORMAT = 1
LEFTOVER_TERM_S, LEFTOVER_KILL_S = 5.0, 5.0
# -I and -S: neither the user's environment nor site-packages delay it; only what lies beside breakeven can be imported.
WATCHDOG_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from breakeven.engines.watchdog import main; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedServer:
    """A launch that was left running. `about` is for people: arm, url, log, as whoever detached it said."""

    launch: Launch
    about: Mapping[str, str]

    @property
    def members(self) -> frozenset[ProcessId]:
        """Every process of it that still runs. Its leader's death does not end its workers."""
        return members_of(self.launch, reserved_until=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What a run folder says of servers left running.

    other_boot: those noted when the machine ran another boot, or on another machine; their process ids mean nothing here.
    foreground: the process that owns servers of this run now (it ends them itself), None where there is none.
    """

    detached: tuple[DetachedServer, ...]
    other_boot: tuple[DetachedServer, ...]
    foreground: ProcessId | None


class LaunchLedger:
    """Open for as long as the run: `with LaunchLedger(run_folder) as ledger: ...`.

    Leaving the block, or dying in any way, hands what is still owned to the watchdog, which ends it.
    """

    def __init__(self, run_folder: Path) -> None:
        self._file = run_folder / SERVERS_FILE
        self._log = run_folder / "logs" / "watchdog.log"
        self._owned: dict[str, Launch] = {}
        self._detached: dict[str, DetachedServer] = {}
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._detached = {server.launch.mark: server for server in _read(self._file).detached if server.members}
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

    def detach(self, mark: str, about: Mapping[str, str]) -> None:
        """Leave the launch running when the run ends; the user ends it.

        Raises:
            StoreError: `servers.json` cannot be written.
        """
        self._detached[mark] = DetachedServer(launch=self._owned.pop(mark), about=about)
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
        _write(self._file, owned=self._owned.values(), detached=self._detached.values())


class _Servers:
    """`servers.json` as read; empty where it is missing, of another boot or damaged: then nothing in it can be verified."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        known = content.get("format") == FORMAT
        valid = known and content.get("boot") == boot_id()
        run = content.get("run") if valid else None
        self.run = ProcessId(*run) if isinstance(run, list) and len(run) == 2 else None
        self.owned = _launches(content.get("owned")) if valid else []
        detached = _detached(content.get("detached")) if known else []
        self.detached = detached if valid else []
        self.other_boot = [] if valid else detached


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


def registered(run_folder: Path) -> Registered:
    """The servers that `breakeven serve --detach` left running for this run, as far as its folder knows."""
    servers = _read(run_folder / SERVERS_FILE)
    alive = servers.run is not None and bool(servers.owned) and is_alive(servers.run)
    return Registered(
        detached=tuple(servers.detached),
        other_boot=tuple(servers.other_boot),
        foreground=servers.run if alive else None,
    )


def forget_ended(run_folder: Path) -> None:
    """Take detached servers of which nothing runs any more out of `servers.json`. Only while the run is locked.

    Raises:
        StoreError: the file cannot be written.
    """
    file = run_folder / SERVERS_FILE
    servers = _read(file)
    _write(file, owned=servers.owned, detached=[server for server in servers.detached if server.members])


def _write(file: Path, *, owned: Iterable[Launch], detached: Iterable[DetachedServer]) -> None:
    content = {
        "format": FORMAT,
        "boot": boot_id(),
        "run": identify(os.getpid()),
        "owned": [launch_to_json(launch) for launch in owned],
        "detached": [launch_to_json(server.launch) | {"about": dict(server.about)} for server in detached],
    }
    partial = file.with_suffix(".partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise StoreError(f"{file}: cannot be written ({error.strerror}); check the disk and permissions") from error


def _detached(entries: object) -> list[DetachedServer]:
    servers = []
    for entry in entries if isinstance(entries, list) else []:
        for launch in _launches([entry]):
            about = entry.get("about")
            texts = about.items() if isinstance(about, dict) else ()
            servers.append(DetachedServer(launch=launch, about={str(key): str(value) for key, value in texts}))
    return servers


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
