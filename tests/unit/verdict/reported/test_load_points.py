"""Figures of one load point may stand in several rows."""

from __future__ import annotations

from pathlib import Path

from breakeven.verdict.reported.files import load_table
from breakeven.verdict.reported.gathering import arms_of


def test_what_only_a_later_row_says_of_a_load_point_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(
        "defaults: {engine: vllm 0.20.2, drafter: h, draft_tokens: 2}\n"
        "rows:\n"
        "  - {arm: a, concurrency: 4, throughput_tok_s: 100, accept_length: 2.30}\n"
        "  - {arm: a, concurrency: 4, accept_length: 2.3, accept_by_position: '0.8, 0.5', temperature: 0, output_tokens: 200}\n"
    )
    (point,) = arms_of(load_table(path))[0].points
    assert point.by_position is not None
    assert [share.value for share in point.by_position] == [0.8, 0.5]
    assert point.output_tokens == 200
    assert point.conditions == (("temperature", "0"),)
