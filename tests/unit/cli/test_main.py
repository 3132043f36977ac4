"""The outermost line: whatever goes wrong in a command is one message, printed so that it cannot steer the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breakeven import cli
from breakeven.cli import MAX_LINE, OTHERS_SPEAK_AFTER_S, app, main
from breakeven.errors import EngineError

LONG = "x" * 5000


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str]:
    monkeypatch.setattr(sys, "argv", ["breakeven", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("verdict", LONG),
        ("report", LONG),
        ("read", LONG),
        ("bench", LONG),
        ("head", "--target", LONG, "--out", "head"),
        ("verdict", "\x1b[31mred\x07"),
        ("bench", "\x1b[31mred\x07"),
        ("fetch", "\x1b[31mred\x07"),
    ],
)
def test_names_that_no_file_has(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert shown.startswith("breakeven: ")
    assert shown.replace("\n", "").isprintable()
    assert len(shown) < MAX_LINE + 600


def test_messages_keep_their_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def fail(_path: Path) -> None:
        raise EngineError("first\nsecond \x1b]0;title\x07 caf\u00e9")

    monkeypatch.setattr("breakeven.cli.results.read_result", fail)
    code, shown = run(monkeypatch, capsys, "verdict", tmp_path)
    assert code == 3
    assert shown == "breakeven: first\nsecond \\x1b]0;title\\x07 caf\u00e9\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_under_a_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("arm,method,concurrency,throughput_tok_s\nplain,none,1,100\na,eagle3,1,120\n")
    code, shown = run(monkeypatch, capsys, "report", table, "--out", "/dev/full")
    assert code == 2
    assert "No space left" in shown


def test_one_column_is_judged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("arm\nx\n")
    code, shown = run(monkeypatch, capsys, "verdict", table)
    assert code in (None, 0, 2)
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("rank", "waited", "said"), [("0", [], "breakeven: "), ("1", [OTHERS_SPEAK_AFTER_S], "breakeven: in process 1: ")]
)
def test_of_torchruns_processes_the_first_is_heard_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, waited: list[float], said: str
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("RANK", rank)
    slept: list[float] = []
    monkeypatch.setattr(cli.time, "sleep", slept.append)
    monkeypatch.setattr(cli.os, "_exit", sys.exit)
    monkeypatch.setattr(sys, "argv", ["breakeven", "train", "absent.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, slept) == (2, waited)
    assert capsys.readouterr().err.startswith(f"{said}absent.yaml")


def test_a_fault_of_our_own_is_no_finding_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*_arguments: object, **_keywords: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr("breakeven.cli.app", broken)
    code, shown = run(monkeypatch, capsys, "verdict", tmp_path)
    assert code == 70
    assert "a fault of breakeven" in shown
    assert "ZeroDivisionError in test_main.py, line" in " ".join(shown.split())
    assert "Traceback" not in shown
    monkeypatch.setenv("BREAKEVEN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main()


@pytest.mark.parametrize("command", [[], ["serve"], ["data"], ["data", "answers"]])
def test_help_is_asked_for_in_short_too(command: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*command, flag]) for flag in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)


def test_every_command_stands_in_a_panel() -> None:
    """Seventeen commands in one list tell nobody where to begin."""
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for panel in ("Measure a deployment", "Predict, read, diagnose", "A drafter of your own"):
        assert panel in shown
    assert "─ Commands ─" not in shown
