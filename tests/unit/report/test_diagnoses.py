"""The doctor's answer on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from breakeven.doctor.result import DoctorResult, Unchecked
from breakeven.report.diagnoses import render_diagnoses


def on_terminal(result: DoctorResult, *, verbose: bool = False) -> str:
    file = io.StringIO()
    render_diagnoses(result, Console(file=file, width=5000, color_system=None), verbose=verbose)
    return file.getvalue()


@pytest.mark.parametrize(("checked", "told"), [(0, "Nothing was checked"), (3, "Nothing wrong in what 3 rules could check.")])
def test_no_check_is_no_clean_bill(checked: int, told: str) -> None:
    assert told in on_terminal(DoctorResult(examined=("engine fake",), findings=(), num_rules_checked=checked))
    assert checked or "Nothing wrong" not in on_terminal(DoctorResult(examined=(), findings=()))


def test_long_lists_of_suspects_keep_their_end() -> None:
    suspects = ", ".join(f"suspect {number}" for number in range(60))
    shown = on_terminal(DoctorResult(examined=(), findings=(), conclusion=suspects, next_check=suspects, refuted=(suspects,)))
    assert shown.count("suspect 59") == 3


def test_what_was_not_checked_is_one_line_an_input_unless_it_is_asked_for() -> None:
    unchecked = (*(Unchecked(code=f"rule-{number}", needs=("draft",)) for number in range(30)), Unchecked(code="x", needs=("run",)))
    result = DoctorResult(examined=(), findings=(), num_rules_checked=3, unchecked=unchecked)
    lines = on_terminal(result).splitlines()[-3:]
    assert lines[0] == "Not checked for want of input: 31 rules, which --verbose names. To check more, provide"
    assert [line.strip() for line in lines[1:]] == ["--draft DIR: 30 rules", "--run RUN: 1 rule"]
    named = on_terminal(result, verbose=True)
    assert "rule-0, rule-1" in named
    assert "--verbose" not in named


def test_a_repair_that_wrote_nothing_says_why() -> None:
    assert "--fix wrote nothing: no reason." in on_terminal(DoctorResult(examined=(), findings=(), not_repaired="no reason"))
