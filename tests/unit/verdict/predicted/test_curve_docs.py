"""docs/curve.md: its commands run, in their order, and its keys are the plan's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.experiment.curve_plan import CurvePlan

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "curve.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_run_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = [line for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]
    assert len(commands) == 3
    outputs = []
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    assert "break-even accept lengths" in outputs[0]
    assert "Cliff at 64 running requests" in outputs[1]
    assert "num_speculative_tokens_per_batch_size" in outputs[2]


def test_the_page_has_every_key_of_the_curve() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(CurvePlan.model_fields)
