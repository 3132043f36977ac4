from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from breakeven.engines.launch_flags import CHECKED, LAUNCH_FLAGS, checked_doubt, choose_flag
from breakeven.versions import Version

PAGE = Path(__file__).parents[3] / "docs/engines.md"


def table() -> str:
    """The page's table of flags; print it and paste it there when rows change."""
    lines = ["| engine | purpose | releases | flag, key or variable | source |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row.engine} | {row.purpose} | {row.span} | {f'`{row.name}`' if row.name else 'none'} | {row.source} |"
        for row in LAUNCH_FLAGS
    ]
    return "\n".join(lines)


def test_the_page_shows_the_rows_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert table() in page, f"docs/engines.md is out of date; its table is now\n{table()}"
    for engine, span in CHECKED.items():
        assert f"{engine} {span}" in page


@pytest.mark.parametrize("purpose", sorted({(row.engine, row.purpose) for row in LAUNCH_FLAGS}))
def test_rows_of_a_purpose_follow_each_other(purpose: tuple[str, str]) -> None:
    rows = [row for row in LAUNCH_FLAGS if (row.engine, row.purpose) == purpose]
    for before, after in itertools.pairwise(rows):
        assert before.span.last is not None
        assert after.span.first is not None
        assert before.span.last < after.span.first
    assert rows[-1].span.last is None


def test_between_two_rows_the_newer_is_taken_with_a_doubt() -> None:
    found = choose_flag("sglang", "largest batch in a graph", Version.parse("0.5.13.post1"))
    assert found.name == "--cuda-graph-max-bs-decode"
    assert "lies between the checked ones" in found.doubt


def test_a_purpose_without_rows_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError, match="no row for vllm, colour"):
        choose_flag("vllm", "colour", None)


@pytest.mark.parametrize(("version", "doubt"), [
    ("0.33.0", "a; b"),
    ("0.34.0", "vllm 0.34.0 was never checked (0.8.5 to 0.33.0 were): unverified"),
    (None, "the release of vllm is not known: flags of the newest one are used (set engine_version)"),
])  # fmt: skip
def test_doubts_about_a_command_line(version: str | None, doubt: str) -> None:
    assert checked_doubt("vllm", Version.parse(version) if version else None, ("a", "", "b")) == doubt
