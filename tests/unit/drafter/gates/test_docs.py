"""docs/training-gates.md: its flags, keys, gates and words are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from typer.main import get_command

from breakeven.cli import app
from breakeven.drafter.gates.result import GateResult, GatesReport, Outcome, Stage
from breakeven.drafter.training.plan_schema import GatesPlan

PAGE = (Path(__file__).parents[4] / "docs" / "training-gates.md").read_text(encoding="utf-8")
FAULTS = (Path(__file__).parent / "test_faults.py").read_text(encoding="utf-8")


def test_flags():
    options = get_command(app).commands["gates"].params  # type: ignore[attr-defined]
    flags = {flag for option in options for flag in option.opts if flag.startswith("--")}
    assert flags - {"--help"} == set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE))


def test_keys_and_fields_and_stages():
    named = [*GatesPlan.model_fields, *GateResult.model_fields, *GatesReport.model_fields]
    assert [name for name in named if f"`{name}`" not in PAGE] == []
    assert [word for word in (*get_args(Stage), *get_args(Outcome)) if word not in PAGE] == []


def test_what_the_table_of_faults_quotes_is_what_the_tests_plant():
    table = PAGE[PAGE.index("## Eight faults") : PAGE.index("Faults that trainer and")]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) == 8
    quoted = re.findall(r'"([^"]+)"', table)
    assert quoted
    assert [words for words in quoted if words.removeprefix("layer ids are ").removeprefix("the ") not in FAULTS] == []
    assert len(re.findall(r"^def test_trainer_", FAULTS, re.MULTILINE)) == 8
    assert len(re.findall(r"^def test_export_", FAULTS, re.MULTILINE)) >= 8
