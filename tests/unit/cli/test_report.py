"""`breakeven report` as a user calls it: every format, from every kind of source, and what cannot be written or read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.errors import BreakevenError, UsageError
from breakeven.verdict.result import SCHEMA_VERSION, Result

EXAMPLE = Path(__file__).parents[3] / "examples" / "kimi-k2.5-blackwell" / "reported.yaml"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["report", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    run(str(EXAMPLE), "--format", "json", "--out", str(path))
    return path


def test_html_is_written_beside_the_source_and_its_path_printed(saved: Path) -> None:
    assert run(str(saved)).strip() == str(saved.parent / "report.html")
    assert (saved.parent / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_dash_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(str(EXAMPLE), "--out", "-").startswith("<!DOCTYPE html>")
    assert run(str(EXAMPLE), "--format", "csv", "--out", "-") == run(str(EXAMPLE), "--format", "csv")
    assert not list(tmp_path.iterdir())


def test_text_formats_go_to_standard_output() -> None:
    assert run(str(EXAMPLE), "--format", "markdown").startswith("## Undecided whether speculation pays")
    rows = list(csv.DictReader(io.StringIO(run(str(EXAMPLE), "--format", "csv"))))
    assert any(row["arm"] == "SGLang + custom" and row["outcome"] == "slower" for row in rows)
    assert Result.model_validate(json.loads(run(str(EXAMPLE), "--format", "json"))).kind == "reported"


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_a_saved_result_says_the_same_as_its_source(saved: Path, form: str) -> None:
    assert run(str(saved), "--format", form) == run(str(EXAMPLE), "--format", form)


def test_a_file_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(EXAMPLE), "--out", str(tmp_path / "missing" / "report.html")])
    assert isinstance(done.exception, UsageError)
    assert "--out" in str(done.exception)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a result"),
        ("[" * 100_000, "not a result"),
        ("{}", "not a result"),
        ('{"schema_version": 99}', "newer"),
        ('{"schema_version": "x"}', "not a result"),
    ],
)
def test_json_that_is_no_result_is_a_message(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(app, ["report", str(path)])
    assert isinstance(done.exception, BreakevenError), done.exception
    assert done.exception.exit_code == 2
    assert words in str(done.exception)
    assert str(SCHEMA_VERSION) in str(done.exception)


def test_nothing_there_is_a_message(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path / "nothing")])
    assert isinstance(done.exception, UsageError)


def test_a_run_is_named_by_its_database_too_and_a_plan_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: a\nengine: fake\nlaunches: {min: 1, max: 1}\nload: [{concurrency: 1}]\narms: {plain: }\n")
    assert CliRunner().invoke(app, ["bench", str(plan)]).exit_code == 0
    (tmp_path / "runs" / "a" / "report.html").unlink()
    assert run("runs/a/run.sqlite").strip() == "runs/a/report.html"
    assert run("runs/a/run.sqlite", "--format", "csv") == run("runs/a", "--format", "csv")
    for command in ("report", "verdict"):
        done = CliRunner().invoke(app, [command, str(plan)])
        assert isinstance(done.exception, UsageError)
        assert "a plan; what is judged is its run" in str(done.exception)
    for command in ("serve", "stop"):
        for named in ("runs/a/run.sqlite", "runs"):
            done = CliRunner().invoke(app, [command, named])
            assert isinstance(done.exception, BreakevenError) or done.exit_code == 0, done.exception
    assert "its plan is" in str(CliRunner().invoke(app, ["bench", str(tmp_path)]).exception)
