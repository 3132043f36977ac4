"""The outermost frame: a signal at any moment before or after a run is one line and exit code 130."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from breakeven import __main__, cli

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run(capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_the_command_works(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(cli, "main", work)
    assert run(capsys) == (130, f"breakeven: ended by {number.name}\n")


def test_ctrl_c_that_the_command_line_has_swallowed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    monkeypatch.setattr(cli, "main", work)
    assert run(capsys) == (130, "breakeven: ended by SIGINT\n")


@pytest.mark.parametrize(("rank", "said"), [("0", "breakeven: ended by SIGTERM\n"), ("1", "")])
def test_of_torchruns_processes_the_first_says_it(
    rank: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr(cli, "main", lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run(capsys) == (130, said)


def test_a_run_that_was_interrupted_has_said_so_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise SystemExit(130)

    monkeypatch.setattr(cli, "main", work)
    assert run(capsys) == (130, "")


def test_signals_that_somebody_has_switched_off_stay_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def work() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        raise SystemExit(0)

    monkeypatch.setattr(cli, "main", work)
    assert run(capsys) == (0, "")
