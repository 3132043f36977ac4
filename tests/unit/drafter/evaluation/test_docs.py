"""docs/evaluation.md and docs/export.md: their commands and flags are those that exist, and every field of the JSON is named."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.drafter.evaluation.result import Evaluation, Figures

DOCS = Path(__file__).parents[4] / "docs"
PAGES = {"eval": (DOCS / "evaluation.md").read_text(encoding="utf-8"), "export": (DOCS / "export.md").read_text(encoding="utf-8")}


@pytest.mark.parametrize("name", PAGES)
def test_every_flag_is_on_the_page_and_no_other(name):
    options = get_command(app).commands[name].params  # type: ignore[attr-defined]
    flags = {flag for option in options for flag in option.opts if flag.startswith("--")}
    on_page = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGES[name]))
    assert flags - {"--help"} == on_page


def test_every_field_of_the_json_is_named():
    fields = {*Evaluation.model_fields, *Figures.model_fields}
    assert {field for field in fields if f"`{field}`" not in PAGES["eval"]} == set()


def example(page: str) -> list[str]:
    found = re.search(r"^    breakeven (.*)$", page, re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def test_the_example_of_eval_runs(talking_target, make_head, tmp_path, monkeypatch):
    prompts = tmp_path / "held_out.jsonl"
    prompts.write_text('{"prompt": "one"}\n')
    folders = iter([talking_target, make_head(vocab_size=264)])
    arguments = [str(next(folders)) if part == "DIR" else part for part in example(PAGES["eval"])]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*arguments, "--max-tokens", "8"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "Accept length" in done.stdout


def test_the_example_of_export_runs(make_target, make_head, tmp_path):
    folders = iter([make_head(), make_target(), tmp_path / "out"])
    done = CliRunner().invoke(app, [str(next(folders)) if part == "DIR" else part for part in example(PAGES["export"])])
    assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "out/config.json").is_file()
