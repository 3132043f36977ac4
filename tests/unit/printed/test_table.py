from __future__ import annotations

from pathlib import Path

from breakeven.printed.definitions import DEFINITIONS
from breakeven.printed.table import definitions_table

PAGE = Path(__file__).parents[3] / "docs" / "acceptance.md"


def test_page_has_the_table_of_today() -> None:
    assert definitions_table() in PAGE.read_text(encoding="utf-8"), "paste the output of: python -m breakeven.printed.table"


def test_a_line_for_every_row() -> None:
    lines = definitions_table().splitlines()
    assert len(lines) == 2 + len(DEFINITIONS)
    assert {line.count("|") for line in lines} == {10}
    old = next(line for line in lines if "0.5.6 to 0.5.10.post1" in line)
    assert "| 0.25 | 1.68 |" in old
