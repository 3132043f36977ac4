"""docs/reported.md: its examples run and say what the page claims, its keys are those of the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from breakeven.verdict.reported import judge_reported
from breakeven.verdict.reported.keys import keys_markdown

PAGE = (Path(__file__).parents[4] / "docs" / "reported.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("kind", ["yaml", "csv"])
def test_example_gives_the_verdict_on_the_page(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    path.write_text(block(kind), encoding="utf-8")
    result = judge_reported(path)
    assert f"{result.headline}\n{result.decision}\n" == block("text")


def test_keys_are_those_of_the_schema() -> None:
    assert keys_markdown() in PAGE, "paste the output of: python -m breakeven.verdict.reported.keys"
    assert "None |" not in keys_markdown()
