from __future__ import annotations

from pathlib import Path

from breakeven.report.schema import schema_markdown


def test_the_schema_page_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "result-schema.md"
    assert page.read_text(encoding="utf-8") == schema_markdown(), "run: python -m breakeven.report.schema > docs/result-schema.md"
