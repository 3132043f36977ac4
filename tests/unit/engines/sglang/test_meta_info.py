"""Fields as each release's tokenizer manager writes them: ten rounds of three drafts, of which 4, 3, 2 and 1 accepted 0 to 3."""

from __future__ import annotations

import pytest

from breakeven.engines.sglang.meta_info import META_INFO_FIELDS, meta_info_acceptance
from breakeven.errors import EngineError
from breakeven.versions import Version, rows_for

HISTOGRAM = [4, 3, 2, 1]
COMMON = {"completion_tokens": 21, "spec_verify_ct": 10, "spec_accept_length": 2.1, "spec_accept_rate": 1 / 3}
ANSWERS: dict[str, dict[str, object]] = {
    "0.5.2": {"completion_tokens": 21, "spec_verify_ct": 10},
    "0.5.5": COMMON,
    "0.5.8": COMMON | {"spec_accept_token_num": 10, "spec_draft_token_num": 30},
    "0.5.10": COMMON | {"spec_accept_token_num": 10, "spec_draft_token_num": 30, "spec_accept_histogram": HISTOGRAM},
    "0.5.11": COMMON | {"spec_accepted_drafts": 10, "spec_proposed_drafts": 30, "spec_accept_histogram": HISTOGRAM},
    "0.5.15": COMMON
    | {"spec_accepted_drafts": 99, "spec_proposed_drafts": 99, "spec_accept_histogram": [99]}
    | {"spec_num_correct_drafts": 10, "spec_num_proposed_drafts": 30, "spec_correct_drafts_histogram": HISTOGRAM},
    "0.5.23": COMMON | {"spec_num_correct_drafts": 10, "spec_num_proposed_drafts": 30, "spec_correct_drafts_histogram": HISTOGRAM},
}


@pytest.mark.parametrize("version", ANSWERS)
def test_every_release_tells_the_same(version: str) -> None:
    found = meta_info_acceptance([ANSWERS[version]])
    assert found is not None
    assert (found.num_steps, found.num_rounds, found.num_accepted, found.accept_length) == (10, 10, 10, 2.0)
    assert found.num_drafted == (10 if version in ("0.5.2", "0.5.5") else 30)
    assert found.exact_steps == (version not in ("0.5.2", "0.5.5"))
    (row,) = rows_for(META_INFO_FIELDS, Version.parse(version)).rows
    assert row.accepted is None or row.accepted in ANSWERS[version]


@pytest.mark.parametrize("version", ["0.5.10", "0.5.11", "0.5.15", "0.5.23"])
def test_positions_from_the_histogram(version: str) -> None:
    found = meta_info_acceptance([ANSWERS[version]])
    assert found is not None
    assert found.accepted_per_position == (6, 3, 1)
    assert sum(found.accepted_per_position) == found.num_accepted


def test_requests_are_added_and_those_without_drafts_left_out() -> None:
    found = meta_info_acceptance([ANSWERS["0.5.23"], {"completion_tokens": 5}, ANSWERS["0.5.23"]])
    assert found is not None
    assert (found.num_steps, found.num_accepted, found.accepted_per_position) == (20, 20, (12, 6, 2))
    assert meta_info_acceptance([{"completion_tokens": 5}]) is None


@pytest.mark.parametrize("value", [-1, 2.5, "3", True, None])
def test_a_count_that_is_none(value: object) -> None:
    with pytest.raises(EngineError, match=r"meta_info\.spec_verify_ct is .*expected a whole number"):
        meta_info_acceptance([{"spec_verify_ct": value}])
