"""`breakeven verdict` on a table of reported figures, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.errors import ReportedError
from breakeven.verdict.result import Result

EXAMPLE = Path(__file__).parents[3] / "examples" / "kimi-k2.5-blackwell" / "reported.yaml"


def test_json_is_the_result() -> None:
    done = CliRunner().invoke(app, ["verdict", str(EXAMPLE), "--json"])
    assert done.exit_code == 0, done.output
    result = Result.model_validate(json.loads(done.output))
    assert result.kind == "reported"
    assert result.headline.startswith("Undecided")


def test_terminal_says_the_verdict_and_that_there_are_no_intervals() -> None:
    done = CliRunner().invoke(app, ["verdict", str(EXAMPLE)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "Undecided whether speculation pays" in text
    assert "no interval" in text
    assert "1.56" in text


def test_a_bad_table_is_one_message_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("rows: [{arm: a, throughputs: 3}]", encoding="utf-8")
    done = CliRunner().invoke(app, ["verdict", str(path)])
    assert isinstance(done.exception, ReportedError)
    assert done.exception.exit_code == 2
    assert "did you mean 'throughput_tok_s'?" in str(done.exception)
