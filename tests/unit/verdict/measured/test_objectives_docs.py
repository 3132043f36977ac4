"""docs/objectives.md: its example runs and shows what the page says, and its table has every objective."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.experiment.objective import ObjectiveName

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")


def test_the_example_shows_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (command,) = [line for line in PAGE.splitlines() if line.startswith("breakeven ")]
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["objective"] == "goodput (first token within 2 s and 0.03 s a token at most)"
    assert {item["outcome"] for item in result["comparisons"]} == {"slower"}
    assert {(other["objective"], other["outcome"]) for item in result["comparisons"] for other in item["by_objective"]} == {
        ("throughput", "slower"),
        ("request speed", "pays"),
    }
    assert any("Judged by request speed, it would be decided otherwise" in item["text"] for item in result["conclusions"])


def test_the_table_has_every_objective() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)[1:] == list(get_args(ObjectiveName))
