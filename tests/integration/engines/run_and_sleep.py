"""A run reduced to its servers, for the tests to kill: starts one stand-in per line of arguments and waits."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from breakeven.engines.base import LaunchCommand
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess


async def main() -> None:
    run_folder, pids, wait, *flags = sys.argv[1:]
    with LaunchLedger(Path(run_folder)) as ledger:
        port = choose_port()
        argv = (sys.executable, str(Path(__file__).with_name("stand_in.py")), "--port", str(port), "--pids", pids, *flags)
        server = ServerProcess.start(
            LaunchCommand(argv=argv), name="a", port=port, log=Path(run_folder) / "logs" / "a.log", ledger=ledger
        )
        if wait != "launch":
            await server.wait_ready("/health", lambda _tail, _code: None, timeout_s=30)
        if wait == "detach":
            server.detach()
        print("started", server.base_url, flush=True)
        time.sleep(300)


asyncio.run(main())
