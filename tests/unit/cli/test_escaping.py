"""Whatever a command prints for people, other people's names in it are shown by their characters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import breakeven.cli
from breakeven.cli import app
from breakeven.cli.escaping import print_message, print_result

HOSTILE = "a\x1b[31m\u202eb"
SHOWN = r"a\x1b[31m\u202eb"
CALLS = re.compile(r"(?:typer\.echo|messages\.print|errors\.print)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*")
# JSON, reports with an escaping of their own, and words that hold nothing of anybody else's
KNOWN = re.compile(
    r'\(\s*"|model_dump_json|json\.dumps|err=True|\(text, nl=False|__version__|escaped\(text\)|status_line|for_training|chr\(10\)'
)
EXAMPLE = Path(__file__).parents[3] / "examples" / "kimi-k2.5-blackwell" / "reported.yaml"


def test_results_and_messages_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(f"{HOSTILE}\nsecond")
    print_message(Console(stderr=True), f"{HOSTILE} [bold]")
    printed = capsys.readouterr()
    assert printed.out == f"{SHOWN}\nsecond\n"
    assert printed.err == f"{SHOWN} [bold]\n"


def test_a_file_named_to_steer_a_terminal(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(EXAMPLE), "--out", str(tmp_path / f"{HOSTILE}.html")])
    assert done.exit_code == 0, done.output
    assert done.output == f"{tmp_path}/{SHOWN}.html\n"


def test_no_command_prints_for_people_by_itself() -> None:
    past = [
        f"{file.name}: {call}"
        for file in Path(breakeven.cli.__file__).parent.glob("*.py")
        for call in CALLS.findall(file.read_text(encoding="utf-8"))
        if not KNOWN.search(call)
    ]
    assert past == []
