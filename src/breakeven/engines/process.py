"""A server process that Breakeven owns: started, waited for, watched, and ended for good.

    with LaunchLedger(run_folder) as ledger:
        server = ServerProcess.start(engine.launch_command(arm, port), name=arm.name, port=port, log=log, ledger=ledger)
        await server.wait_ready(engine.health_path, engine.explain_failure, timeout_s=600)
        ...
        await server.stop()

A dead leader is not reaped before everything else of its launch is gone: until then its pid, which is also the number of its
session, cannot be given to a stranger.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp

from breakeven.engines.base import LaunchCommand
from breakeven.engines.gpu_memory import GpuMemory
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ownership import FOREVER, MARK, Launch, end_launches, identify, members_of
from breakeven.engines.server_log import log_tail
from breakeven.errors import EngineDied, EngineError, LaunchError, StoreError
from breakeven.units import format_duration

__all__ = ["Explain", "Progress", "ServerProcess", "Stopped"]

POLL_S = 0.1
HEALTH_INTERVAL_S = 0.25
HEALTH_TIMEOUT_S = 10.0
TERM_S, KILL_S = 15.0, 10.0
# The cause stands far above the end: every process of an engine adds a traceback of its own.
LINES_READ, LINES_SHOWN = 300, 12

Explain = Callable[[Sequence[str], int | None], str | None]
Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """How a server ended. `gpu_note` is empty unless GPU memory did not come back (another program may hold it)."""

    exit_code: int | None
    took_s: float
    gpu_note: str = ""


class ServerProcess:
    """`launch` is unique to this start of a server; `base_url` is where it listens once it is ready."""

    def __init__(
        self,
        *,
        name: str,
        port: int,
        log: Path,
        ledger: LaunchLedger,
        launch: Launch,
        popen: subprocess.Popen[bytes],
        gpu_before: GpuMemory,
    ) -> None:
        self.name = name
        self.port = port
        self.log = log
        self.base_url = f"http://127.0.0.1:{port}"
        self._ledger = ledger
        self._launch = launch
        self._popen = popen
        self._started_s = time.monotonic()
        self._exit_code: int | None = None
        self._gpu_before = gpu_before
        self._detached = False

    @classmethod
    def start(cls, command: LaunchCommand, *, name: str, port: int, log: Path, ledger: LaunchLedger) -> Self:
        """Start `command` in a session of its own, its output appended to `log`.

        Raises:
            LaunchError: the program cannot be started.
            StoreError: the log or the ledger cannot be written; nothing was started.
        """
        mark = uuid.uuid4().hex
        gpu_before = GpuMemory.read()
        # owned before it exists: a run killed between the two leaves a mark to look for
        ledger.own(Launch(mark))
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        except OSError as error:
            ledger.forget(mark)
            raise StoreError(f"{log}: cannot be written ({error.strerror}); check the disk and permissions") from error
        with output:
            try:
                popen = subprocess.Popen(
                    command.argv,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **command.env, MARK: mark},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                ledger.forget(mark)
                raise LaunchError(
                    f"arm {name}: cannot start {command.argv[0]!r} ({error.strerror}); is the engine installed and on the PATH?"
                ) from error
        launch = Launch(mark, identify(popen.pid))
        server = cls(name=name, port=port, log=log, ledger=ledger, launch=launch, popen=popen, gpu_before=gpu_before)
        ledger.own(launch)
        return server

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while the server runs; -N when signal N ended it. Does not reap (see the module's comment)."""
        if self._exit_code is None:
            self._exit_code = _exit_code(self._popen)
        return self._exit_code

    async def wait_ready(
        self, health_path: str, explain: Explain, *, timeout_s: float, progress: Progress = lambda _elapsed_s, _line: None
    ) -> float:
        """Seconds from the start until `health_path` answered 200. The server is left as it is on failure: stop it.

        progress: called several times a second with the seconds so far and the log's last line.

        Raises:
            LaunchError: it exited or was not ready in time, with what the log says and, where known, why.
        """
        answer = "nothing listens yet"
        timeout = aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)
        next_look_s = 0.0
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                elapsed_s = time.monotonic() - self._started_s
                code = self.exit_code
                if code is not None:
                    raise self._launch_error(
                        f"exited {_describe(code)} after {format_duration(elapsed_s)}, before it was ready", explain
                    )
                if elapsed_s > timeout_s:
                    raise self._launch_error(
                        f"was not ready after {format_duration(elapsed_s)} ({answer}); if it only is slow, give it longer",
                        explain,
                    )
                if elapsed_s >= next_look_s:
                    next_look_s = elapsed_s + HEALTH_INTERVAL_S
                    try:
                        async with session.get(self.base_url + health_path) as response:
                            answer = f"{health_path} answered {response.status}"
                            ready = response.status == 200
                    except (aiohttp.ClientError, TimeoutError) as error:
                        ready = False
                        if not isinstance(error, aiohttp.ClientConnectorError):
                            answer = f"{health_path} did not answer"
                    if ready and self.exit_code is None:
                        # workers exist now: the next start can recognise them even when they have overwritten their environment
                        self._launch = self._launch._replace(members=tuple(sorted(members_of(self._launch, FOREVER))))
                        self._ledger.own(self._launch)
                        return time.monotonic() - self._started_s
                    progress(elapsed_s, (log_tail(self.log, 1) or ("",))[0])
                await asyncio.sleep(POLL_S)

    def check_alive(self, explain: Explain = lambda _tail, _code: None, *, what: str = "was being measured") -> None:
        """Raises EngineDied, with why where that is known and else the end of the log, once the process is gone.

        what: what was being done with it.
        """
        code = self.exit_code
        if code is not None:
            tail = log_tail(self.log, LINES_READ)
            raise EngineDied(
                f"arm {self.name}: the server exited {_describe(code)} while it {what}. {self._why(tail, explain)}",
                log_tail=tail,
            )

    async def stop(self, *, term_s: float = TERM_S, kill_s: float = KILL_S) -> Stopped:
        """End the server and everything it started: SIGTERM, after `term_s` SIGKILL, until nothing is left. Safe to call twice.

        Raises:
            EngineError: processes survive SIGKILL for `kill_s`.
        """
        return await asyncio.shield(asyncio.to_thread(self.stop_now, term_s=term_s, kill_s=kill_s))

    def stop_now(self, *, term_s: float = TERM_S, kill_s: float = KILL_S) -> Stopped:
        """As `stop`, blocking."""
        began_s = time.monotonic()
        if self._detached or self._popen.returncode is not None:
            return Stopped(exit_code=self.exit_code, took_s=0.0)
        survivors = end_launches([self._launch], term_s=term_s, kill_s=kill_s, reserved_until=FOREVER)
        if survivors:
            pids = ", ".join(str(process.pid) for process in sorted(survivors))
            raise EngineError(
                f"arm {self.name}: processes {pids} survive SIGKILL; they hang in the kernel (a driver or a network disk). "
                "End them or restart the machine before measuring again"
            )
        code = self._exit_code = self._popen.wait()
        self._ledger.forget(self._launch.mark)
        return Stopped(exit_code=code, took_s=time.monotonic() - began_s, gpu_note=self._gpu_before.wait_until_returned())

    def detach(self, about: Mapping[str, str] | None = None) -> None:
        """Leave it running after the run; from now on only the user ends it. `about` is kept with it for `breakeven stop`."""
        self._ledger.detach(self._launch.mark, about or {})
        self._detached = True

    def _launch_error(self, what: str, explain: Explain) -> LaunchError:
        tail = log_tail(self.log, LINES_READ)
        return LaunchError(f"arm {self.name}: the server {what}. {self._why(tail, explain)}", log_tail=tail)

    def _why(self, tail: Sequence[str], explain: Explain) -> str:
        why = explain(tail, self.exit_code)
        return f"{why} Its log: {self.log}" if why else self._shown(tail)

    def _shown(self, tail: Sequence[str]) -> str:
        if not tail:
            return f"It wrote nothing to {self.log}"
        return "\n  ".join([f"The last lines of {self.log}:", *tail[-LINES_SHOWN:]])


def _exit_code(popen: subprocess.Popen[bytes]) -> int | None:
    if popen.returncode is not None:
        return popen.returncode
    if not hasattr(os, "waitid"):  # macOS before Python 3.13: reaped at once
        return popen.poll()
    try:
        status = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return popen.poll()
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _describe(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"on {name}" + (" (by the system where memory runs out, or by a server that gives up)" if name == "SIGKILL" else "")
