"""Which processes belong to a launch, and how to end them all and nobody else's.

A server is started as the leader of its own session and with a mark in its environment. What belongs to it is found three ways,
since each alone misses some: everything in that session (a worker may clear its environment or rename itself, which overwrites
it), everything that carries the mark (a worker may open a session of its own), and every child of those.

Why not PR_SET_PDEATHSIG: it reaches the direct child only, not the workers a server forks; it fires when the *thread* that
started the child ends; it is cleared by a set-uid exec; and only Linux has it.

A process is named by pid **and** start time, never by pid alone: pids are reused. This module is also the watchdog's, so it imports
nothing but the standard library (psutil only where there is no /proc).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "FOREVER",
    "MARK",
    "Launch",
    "ProcessId",
    "boot_id",
    "end_launches",
    "identify",
    "is_alive",
    "members_of",
    "now_in_start_units",
]

MARK = "BREAKEVEN_LAUNCH"
PROC = Path("/proc")
SCAN_INTERVAL_S = 0.1
FOREVER = 1 << 62


class ProcessId(NamedTuple):
    """`started`: clock ticks since boot on Linux, microseconds since 1970 elsewhere; unique together with `pid` within a boot."""

    pid: int
    started: int


class Launch(NamedTuple):
    """`mark` is unique to the launch. `leader` is None while the process is being started. `members` were seen in it once."""

    mark: str
    leader: ProcessId | None = None
    members: tuple[ProcessId, ...] = ()


class _Row(NamedTuple):
    id: ProcessId
    parent: int
    session: int


def boot_id() -> str:
    """Changes at every boot; empty where the system has none (start times are absolute there)."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def identify(pid: int) -> ProcessId | None:
    """The name of a process that exists now (a zombie exists too); None when there is none."""
    if not _has_proc():
        row = next((row for row in _psutil_table() if row.id.pid == pid), None)
        return row.id if row is not None else None
    row_and_running = _read_stat(pid)
    return row_and_running[0].id if row_and_running is not None else None


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    if not _has_proc():
        return any(row.id == process for row in _psutil_table())
    row_and_running = _read_stat(process.pid)
    return row_and_running is not None and row_and_running[0].id == process and row_and_running[1]


def members_of(launch: Launch, reserved_until: int) -> frozenset[ProcessId]:
    """Every running process that belongs to `launch`.

    reserved_until: until when, in the units of `ProcessId.started`, the leader's pid surely had no other owner because it was
        running or unreaped by its parent. The session has that number, so whatever started in it before then is ours; later ones
        are ours only where one of ours still holds the session. `FOREVER` for the parent itself, 0 where nothing is known.
    """
    rows = list(_table())
    by_pid = {row.id.pid: row for row in rows}
    known = {*launch.members, launch.leader}
    found = {row.id for row in rows if row.id in known or _marked(row.id.pid, launch.mark)}
    leader = by_pid.get(launch.leader.pid) if launch.leader is not None else None
    # another process with the leader's pid is a stranger, and the session of that number is the stranger's
    if launch.leader is not None and (leader is None or leader.id == launch.leader):
        session = [row for row in rows if row.session == launch.leader.pid and row.id.started >= launch.leader.started]
        if any(row.id in found for row in session):
            reserved_until = FOREVER
        found |= {row.id for row in session if row.id.started < reserved_until}
    while children := {row.id for row in rows if row.id not in found and _is_child(row, by_pid, found)}:
        found |= children
    return frozenset(found - _ourselves(by_pid))


def end_launches(
    launches: Iterable[Launch],
    *,
    term_s: float,
    kill_s: float,
    reserved_until: int,
    still_starting_s: float = 0.0,
) -> frozenset[ProcessId]:
    """SIGTERM everything that belongs to `launches`, SIGKILL what is left after `term_s`, return what survives `kill_s` more.

    reserved_until: see `members_of`.
    still_starting_s: how long to keep looking when nothing was found, for a child caught between its fork and its exec, when it
        does not carry the mark yet.
    """
    seen = {launch: set(launch.members) for launch in launches}
    told: set[ProcessId] = set()
    began_s = time.monotonic()
    while True:
        found: set[ProcessId] = set()
        for launch, members in seen.items():
            # what was seen once stays known: a parent's death cuts the only tie to a child with neither session nor mark
            now = members_of(launch._replace(members=tuple(members)), reserved_until)
            members |= now
            found |= now
        elapsed_s = time.monotonic() - began_s
        if (not found and elapsed_s >= still_starting_s) or elapsed_s > term_s + kill_s:
            return frozenset(found)
        for process in found:
            if elapsed_s >= term_s:
                _send(process, signal.SIGKILL)
            elif process not in told:
                _send(process, signal.SIGTERM)
                told.add(process)
        time.sleep(SCAN_INTERVAL_S)


def now_in_start_units() -> int:
    """The present moment in the units of `ProcessId.started`."""
    if _has_proc():
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    return int(time.time() * 1e6)


def _has_proc() -> bool:
    return (PROC / "self/stat").exists()


def _table() -> Iterator[_Row]:
    """Every process that runs; zombies left out."""
    if not _has_proc():
        yield from _psutil_table()
        return
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            row_and_running = _read_stat(int(entry.name))
            if row_and_running is not None and row_and_running[1]:
                yield row_and_running[0]


def _read_stat(pid: int) -> tuple[_Row, bool] | None:
    """The process and whether it runs. While its other threads are still ending, a dead first thread is no zombie yet."""
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # the command's name stands in brackets and may hold anything, brackets and spaces included
    fields = stat[stat.rindex(b")") + 2 :].split()
    return _Row(ProcessId(pid, int(fields[19])), int(fields[1]), int(fields[3])), fields[0] not in (b"Z", b"X") or int(
        fields[17]
    ) > 1


def _psutil_table() -> Iterator[_Row]:
    import psutil

    for process in psutil.process_iter(["create_time", "ppid", "status"]):
        seen = process.info
        if seen["status"] == psutil.STATUS_ZOMBIE or seen["create_time"] is None:
            continue
        try:
            session = os.getsid(process.pid)
        except OSError:
            session = -1
        yield _Row(ProcessId(process.pid, int(seen["create_time"] * 1e6)), seen["ppid"] or 0, session)


def _marked(pid: int, mark: str) -> bool:
    entry = f"{MARK}={mark}".encode()
    if _has_proc():
        try:
            return entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or gone
            return False
    import psutil

    try:
        return psutil.Process(pid).environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


def _is_child(row: _Row, by_pid: dict[int, _Row], found: set[ProcessId]) -> bool:
    parent = by_pid.get(row.parent)
    return parent is not None and parent.id in found and parent.id.started <= row.id.started


def _ourselves(by_pid: dict[int, _Row]) -> set[ProcessId]:
    """This process and its ancestors: when Breakeven itself runs under a marked process, that is not ours to end."""
    line: set[ProcessId] = set()
    row = by_pid.get(os.getpid())
    while row is not None and row.id not in line:
        line.add(row.id)
        row = by_pid.get(row.parent)
    return line


def _send(process: ProcessId, number: signal.Signals) -> None:
    handle = _handle(process.pid)
    try:
        if identify(process.pid) != process:
            return
        if handle is not None:
            # the handle pins the process, so what was checked is what is signalled
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except OSError:  # it went by itself, or belongs to another user
        return
    finally:
        if handle is not None:
            os.close(handle)


def _handle(pid: int) -> int | None:
    """A pidfd, or None where the system has none: other systems, old kernels, sandboxes."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None
