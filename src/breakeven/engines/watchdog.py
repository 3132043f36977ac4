"""The process that outlives the run by ten seconds: it ends the servers of a run that died, however it died.

`python watchdog.py` reads one JSON object a line: `{"own": LAUNCH}` or `{"forget": MARK}`. Its standard input is a pipe whose other
end only the run holds, so the end of the file means that the run is gone, by kill -9 as well. It lives in a session of its own
(Ctrl-C in the terminal does not reach it), uses a few megabytes and imports nothing beyond the standard library.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from breakeven.engines.ownership import Launch, ProcessId, end_launches, now_in_start_units

__all__ = ["launch_from_json", "launch_to_json", "main"]

TERM_S = 4.0
KILL_S = 4.0
# A run killed between a fork and its exec leaves a child that shows its mark only a moment later.
STILL_STARTING_S = 1.0
# A forked child of the run that never execs would hold the pipe open after the run's death: so the parent is looked at too.
PARENT_CHECK_S = 0.5


def launch_to_json(launch: Launch) -> dict[str, object]:
    """Plain lists, for the pipe and for servers.json."""
    return {"mark": launch.mark, "leader": launch.leader, "members": list(launch.members)}


def launch_from_json(fields: dict[str, object]) -> Launch:
    """The inverse of `launch_to_json`.

    Raises:
        ValueError, TypeError, KeyError: not what `launch_to_json` writes.
    """
    mark, leader, members = fields["mark"], fields.get("leader"), fields.get("members", [])
    if not isinstance(mark, str) or len(mark) < 16 or not isinstance(members, list):
        raise ValueError(f"not a launch: {fields!r:.200}")
    return Launch(mark, _process_id(leader) if leader is not None else None, tuple(_process_id(member) for member in members))


def _process_id(pair: object) -> ProcessId:
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(type(part) is int and part > 0 for part in pair)):
        raise ValueError(f"not a process: {pair!r:.100}")
    return ProcessId(*pair)


def main() -> int:
    """Watch until the run is gone, end what it still owns, and return how many processes survived (0 expected)."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    run = os.getppid()
    owned: dict[str, Launch] = {}
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    _follow(run, owned)
    gone_at = now_in_start_units()
    if not owned:
        return 0
    _say(f"the run (process {run}) is gone; ending {len(owned)} launches: {', '.join(owned)}")
    survivors = end_launches(
        owned.values(), term_s=TERM_S, kill_s=KILL_S, reserved_until=gone_at, still_starting_s=STILL_STARTING_S
    )
    _say(f"could not end {sorted(survivors)}" if survivors else "all ended")
    return len(survivors)


def _follow(run: int, owned: dict[str, Launch]) -> None:
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_S)
        if readable:
            received = os.read(0, 65536)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "forget" in message:
                    owned.pop(message["forget"], None)
                else:
                    launch = launch_from_json(message["own"])
                    owned[launch.mark] = launch
        elif os.getppid() != run:
            return


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} watchdog {os.getpid()}: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
