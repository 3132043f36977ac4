"""What answers report about their drafts: vLLM's and SGLang's fields, sums, and nonsense."""

from __future__ import annotations

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.registry import get_engine
from breakeven.engines.request_acceptance import requests_acceptance

VLLM = {
    "num_spec_steps": 10, "num_accepted_draft_tokens": 10, "num_draft_tokens": 30, "acceptance_histogram": [4, 3, 2, 1],
    "num_spec_tokens": 3,
}  # fmt: skip
SGLANG = {
    "spec_verify_ct": 10, "spec_num_correct_drafts": 10, "spec_num_proposed_drafts": 30,
    "spec_correct_drafts_histogram": [4, 3, 2, 1],
}  # fmt: skip


def test_both_engines_say_the_same() -> None:
    # 21 tokens: one from prefill, ten rounds, ten accepted drafts
    vllm, sglang = requests_acceptance([(VLLM, 21)]), requests_acceptance([(SGLANG, 21)])
    for found in (vllm, sglang):
        assert found is not None
        assert (found.num_steps, found.num_rounds, found.num_drafted, found.num_accepted) == (10, 10, 30, 10)
        assert (found.accepted_per_position, found.source) == ((6, 3, 1), "requests")


def test_vllm_counts_only_steps_with_drafts() -> None:
    found = requests_acceptance([(VLLM, 41)])
    assert found is not None
    assert (found.num_steps, found.num_rounds, found.exact_steps) == (30, 10, False)


def test_a_request_without_drafts_counts_with_its_steps() -> None:
    """As vLLM 0.32.0 reports it where a schedule rests."""
    rested = {"acceptance_histogram": [0, 0, 0, 0], "num_spec_steps": 0, "num_accepted_draft_tokens": 0, "num_draft_tokens": 0}
    found = requests_acceptance([(VLLM, 21), (rested, 11)])
    assert found is not None
    assert (found.num_steps, found.num_rounds, found.accept_length) == (20, 10, 1.5)
    assert requests_acceptance([(rested, 1)]) is None


def test_requests_are_added_and_others_left_out() -> None:
    found = requests_acceptance([(SGLANG, 21), ({"spec_verify_ct": 0}, 1), ({"other": 3}, 5), (SGLANG, 21)])
    assert found is not None
    assert (found.num_steps, found.accept_length) == (20, 2.0)
    assert requests_acceptance([]) is None
    assert requests_acceptance([({"other": 3}, 5)]) is None


@pytest.mark.parametrize("nonsense", [{"num_spec_steps": -1}, {"spec_verify_ct": 2.5}, {**VLLM, "acceptance_histogram": ["x"]}])
def test_one_report_of_nonsense_leaves_none(nonsense: dict[str, object]) -> None:
    assert requests_acceptance([(VLLM, 21), (nonsense, 5)]) is None


@pytest.mark.parametrize(
    ("version", "asked"),
    [("0.5.18", False), ("0.5.19", True), ("0.5.23", True), ("0.6.0", True), (None, False), ("?", False), (5, False)],
)
def test_sglang_is_asked_for_them_from_the_release_that_knows(version: object, asked: bool) -> None:
    drafting = Arm(name="a", engine="sglang", speculation=Speculation(method="ngram", num_draft_tokens=3))
    engine = get_engine("sglang")
    assert bool(engine.request_fields(drafting, {"version": version})) == asked
    assert not engine.request_fields(Arm(name="a", engine="sglang"), {"version": "0.5.23"})
    assert not get_engine("vllm").request_fields(drafting, {"version": "0.32.0"})
