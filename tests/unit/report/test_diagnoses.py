"""The doctor's answer on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from breakeven.doctor.result import DoctorResult
from breakeven.report.diagnoses import render_diagnoses


def on_terminal(result: DoctorResult) -> str:
    file = io.StringIO()
    render_diagnoses(result, Console(file=file, width=5000, color_system=None))
    return file.getvalue()


@pytest.mark.parametrize(("checked", "told"), [(0, "Nothing was checked"), (3, "Nothing wrong in what 3 rules could check.")])
def test_no_check_is_no_clean_bill(checked: int, told: str) -> None:
    assert told in on_terminal(DoctorResult(examined=("engine fake",), findings=(), num_rules_checked=checked))
    assert checked or "Nothing wrong" not in on_terminal(DoctorResult(examined=(), findings=()))


def test_long_lists_of_suspects_keep_their_end() -> None:
    suspects = ", ".join(f"suspect {number}" for number in range(60))
    shown = on_terminal(DoctorResult(examined=(), findings=(), conclusion=suspects, next_check=suspects, refuted=(suspects,)))
    assert shown.count("suspect 59") == 3
