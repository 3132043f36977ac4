"""Work that a signal ends in good order: SIGINT, SIGTERM and SIGHUP cancel it once, so that its servers are ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["ENDING_SIGNALS", "until_signalled"]

T = TypeVar("T")

# SIGHUP: the terminal or the connection went away. Servers lead sessions of their own and would outlive it.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_signalled(work: Coroutine[Any, Any, T], on_signal: Callable[[signal.Signals, bool], None]) -> T | None:
    """The result of `work`, or None where a signal ended it.

    on_signal: called with every signal, and whether one has come before; only the first cancels.
    """
    task = asyncio.ensure_future(work)
    signalled = False

    def interrupt(number: signal.Signals) -> None:
        nonlocal signalled
        again, signalled = signalled, True
        if not again:
            task.cancel()
        # the terminal may be what went away
        with contextlib.suppress(OSError):
            on_signal(number, again)

    loop = asyncio.get_running_loop()
    # nohup and the like have switched some off, and mean it
    before = {number: handler for number in ENDING_SIGNALS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not signalled:
            raise
        return None
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            # None: somebody's in C, which Python cannot put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
