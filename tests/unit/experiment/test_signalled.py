"""Work that signals end: once, in good order, with whoever held the signal before getting it back."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from breakeven.experiment.signalled import ENDING_SIGNALS, until_signalled


async def patient(log: list[str]) -> str:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        log.append("put in order")
        await asyncio.sleep(0.05)
        raise
    return "done"


@pytest.mark.parametrize("number", ENDING_SIGNALS)
async def test_the_first_signal_cancels_the_others_are_told(number: signal.Signals) -> None:
    log: list[str] = []
    seen: list[tuple[signal.Signals, bool]] = []
    loop = asyncio.get_running_loop()
    loop.call_later(0.02, os.kill, os.getpid(), number)
    loop.call_later(0.04, os.kill, os.getpid(), number)
    assert await until_signalled(patient(log), lambda came, again: seen.append((came, again))) is None
    assert seen == [(number, False), (number, True)]
    assert log == ["put in order"]


async def test_a_terminal_that_is_gone_keeps_nobody_from_ending() -> None:
    def told(_number: signal.Signals, _again: bool) -> None:
        raise OSError("no terminal")

    asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGHUP)
    assert await until_signalled(patient([]), told) is None


async def test_what_is_not_signalled_goes_its_way() -> None:
    async def quick() -> int:
        return 7

    async def broken() -> int:
        raise ValueError("a fault")

    async def cancelled() -> int:
        raise asyncio.CancelledError

    before = [signal.getsignal(number) for number in ENDING_SIGNALS]
    assert await until_signalled(quick(), lambda *_: None) == 7
    with pytest.raises(ValueError, match="a fault"):
        await until_signalled(broken(), lambda *_: None)
    with pytest.raises(asyncio.CancelledError):
        await until_signalled(cancelled(), lambda *_: None)
    assert [signal.getsignal(number) for number in ENDING_SIGNALS] == before


async def test_a_signal_that_is_switched_off_stays_off() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        async def hung_up() -> str:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
            return "still there"

        assert await until_signalled(hung_up(), lambda *_: None) == "still there"
    finally:
        signal.signal(signal.SIGHUP, before)
