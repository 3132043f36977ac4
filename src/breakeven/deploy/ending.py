"""Servers that a run left running, ended for good."""

from __future__ import annotations

import contextlib
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from breakeven.engines.ledger import SERVERS_FILE, DetachedServer, end_leftovers, forget_ended, registered
from breakeven.engines.ownership import end_launches
from breakeven.errors import EngineError, StoreError, UsageError
from breakeven.experiment.run_folder import DATABASE, no_run
from breakeven.experiment.run_lock import RunLock

__all__ = ["EndedServer", "end_served"]

TERM_S, KILL_S = 15.0, 10.0
CONNECT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedServer:
    """`pids` are the processes that were ended; none where it had gone before, `gone_because` then says how."""

    about: Mapping[str, str]
    pids: tuple[int, ...]
    gone_because: str = ""


def end_served(folder: Path) -> tuple[EndedServer, ...]:
    """End every detached server of the run `folder`, and whatever a killed start left behind; empty where there is nothing.

    A server is gone when no process carries its mark, stands in its session or descends from one that does, and nothing listens
    on its port any more.

    Raises:
        StoreError: no run there.
        UsageError: it was started on another machine, or runs in the foreground of another process.
        EngineError: processes survive SIGKILL.
    """
    if not (folder / DATABASE).is_file() and not (folder / SERVERS_FILE).is_file():
        raise no_run(folder)
    leftovers = end_leftovers(folder)
    known = registered(folder)
    ended = []
    if leftovers:
        pids = tuple(sorted(process.pid for process in leftovers))
        ended.append(EndedServer(about={"arm": "a server left behind by a start that was killed"}, pids=pids))
    ended += [_end(server) for server in known.detached]
    for server in known.other_boot:
        _refuse_elsewhere(server)
        ended.append(EndedServer(about=server.about, pids=(), gone_because="went down when the machine restarted"))
    if known.foreground is not None and not ended:
        raise UsageError(
            f"{folder}: process {known.foreground.pid} owns the servers of this run now and ends them itself; press Ctrl-C there, "
            f"or: kill {known.foreground.pid}"
        )
    # a bench at work rewrites the file itself, and leaves out what is gone at its next start
    with contextlib.suppress(StoreError), RunLock(folder):
        forget_ended(folder)
    return tuple(ended)


def _end(server: DetachedServer) -> EndedServer:
    members = server.members
    if not members:
        _refuse_elsewhere(server)
        return EndedServer(about=server.about, pids=(), gone_because="was gone already")
    # what was seen now stays recognisable when the leader's end cuts the ties between the others
    launch = server.launch._replace(members=tuple(sorted({*server.launch.members, *members})))
    survivors = end_launches([launch], term_s=TERM_S, kill_s=KILL_S, reserved_until=0) | server.members
    if survivors:
        pids = ", ".join(str(process.pid) for process in sorted(survivors))
        raise EngineError(
            f"{_name(server)}: processes {pids} survive SIGKILL; they hang in the kernel, or belong to another user. "
            "End them as that user, or restart the machine"
        )
    url = server.about.get("url")
    if url is not None and _answers(url):
        raise EngineError(f"{_name(server)}: all its processes are gone, yet something listens at {url}; see who started it")
    return EndedServer(about=server.about, pids=tuple(sorted(process.pid for process in members)))


def _refuse_elsewhere(server: DetachedServer) -> None:
    host = server.about.get("host", "")
    if host and host != platform.node():
        raise UsageError(
            f"{_name(server)}: was started on {host!a}, and this is {platform.node()!a}, where its processes cannot be seen; "
            f"run breakeven stop there. If that machine is gone, delete {SERVERS_FILE} in the run's folder"
        )


def _name(server: DetachedServer) -> str:
    return server.about.get("arm", "a server of this run")


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=CONNECT_S):
            return True
    except (OSError, ValueError):
        return False
