"""Rows of what releases read of a drafter: settled inside what was read, open between, doubtful beyond."""

from __future__ import annotations

import pytest

from breakeven.engines.drafter_facts import DRAFTER_FACTS, drafter_fact
from breakeven.versions import Version


@pytest.mark.parametrize(
    ("engine", "topic", "version", "value"),
    [
        ("sglang", "layers.0 names", "0.5.9", "dropped"),
        ("sglang", "layers.0 names", "0.5.11", "dropped"),
        ("sglang", "layers.0 names", "0.5.12", None),
        ("sglang", "layers.0 names", "0.5.12.post1", "read"),
        ("sglang", "norm_before_fc", "0.5.16", "dropped"),
        ("sglang", "norm_before_fc", "0.5.17", None),
        ("sglang", "norm_before_fc", "0.5.18", "read"),
        ("sglang", "norm_before_residual", "0.5.2", "dropped"),
        ("sglang", "norm_before_residual", None, "dropped"),
        ("vllm", "nested layer ids", "0.20.2", "never"),
        ("vllm", "nested layer ids", "0.21.0", None),
        ("vllm", "nested layer ids", None, None),
        ("vllm", "model runner", "0.33.0", "V2"),
        ("vllm", "short drafters", "0.32.0", "raised"),
        ("vllm", "short drafters", "0.26.0", None),
        ("vllm", "short drafters", None, None),
    ],
)
def test_what_is_settled(engine: str, topic: str, version: str | None, value: str | None) -> None:
    known = drafter_fact(engine, topic, Version.parse(version) if version else None)  # type: ignore[arg-type]
    assert known.settled == value
    assert bool(known.doubt) == (value is None)


def test_a_release_newer_than_all_is_unverified() -> None:
    known = drafter_fact("sglang", "norm_before_residual", Version.parse("0.9.0"))
    assert known.settled == "dropped"
    assert "unverified" in known.doubt


def test_a_topic_without_rows_is_not_known() -> None:
    assert drafter_fact("vllm", "num_aux_hidden_states", Version.parse("0.33.0")).settled == "not known"


def test_rows_of_one_topic_do_not_overlap() -> None:
    groups: dict[tuple[str, str], list[object]] = {}
    for row in DRAFTER_FACTS:
        for other in groups.setdefault((row.engine, row.topic), []):
            assert other.span.last is not None  # type: ignore[attr-defined]
            assert row.span.first is not None
            assert other.span.last < row.span.first  # type: ignore[attr-defined]
        groups[row.engine, row.topic].append(row)
        assert row.source
