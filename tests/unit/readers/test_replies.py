"""Replies kept by a client and /server_info: counts by the fields of each release, and nothing from text or nonsense."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.unit.readers.conftest import codes

from breakeven.errors import UsageError
from breakeven.readers.files import Told
from breakeven.readers.reading import Reading, ReadResult

ReadOne = Callable[..., Reading]
Read = Callable[..., ReadResult]
NEW = {"completion_tokens": 257, "spec_verify_ct": 100, "spec_num_correct_drafts": 156, "spec_num_proposed_drafts": 300}
OLD = {"completion_tokens": 257, "spec_verify_ct": 100, "spec_accept_token_num": 156, "spec_draft_token_num": 300}
OLDEST = {"completion_tokens": 257, "spec_verify_ct": 100, "spec_accept_length": 2.57}


@pytest.mark.parametrize(("meta", "acceptance"), [(NEW, 0.52), (OLD, 0.52), (OLDEST, None)], ids=["new", "old", "oldest"])
def test_meta_info_of_each_release(read_one: ReadOne, meta: dict[str, object], acceptance: float | None) -> None:
    reading = read_one(json.dumps({"text": 'a "spec_verify_ct": 5 in text', "meta_info": meta}))
    assert reading.acceptance is not None
    # the printed 2.57 counts the token of prefill: 156 accepted in 100 rounds are 2.56
    assert reading.acceptance.accept_length == pytest.approx(2.56)
    assert reading.acceptance.draft_acceptance == acceptance
    assert (reading.engine, reading.kind, reading.num_lines) == ("sglang", "replies", 1)
    assert reading.acceptance.uncertainty is None, "one reply does not show how replies differ"


def test_replies_are_summed_before_dividing_and_make_the_interval(read_one: ReadOne) -> None:
    lines = "".join(
        json.dumps({"meta_info": {**NEW, "spec_num_correct_drafts": 156 + 20 * (i % 3 - 1), "spec_verify_ct": 100 + 50 * (i % 2)}})
        + "\n"
        for i in range(12)
    )
    found = read_one(lines + "not json\n").acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(1 + 156 / 125)
    assert found.uncertainty is not None
    assert 0.05 < found.uncertainty < 0.5


def test_vllm_counts_all_decode_steps_by_the_tokens_of_the_reply(read_one: ReadOne) -> None:
    counts = {"num_spec_steps": 20, "num_accepted_draft_tokens": 40, "num_draft_tokens": 60, "acceptance_histogram": [2, 4, 6, 8]}
    reply = {"usage": {"completion_tokens": 101}, "metrics": {"speculative_decoding": counts}}
    found = read_one(json.dumps([reply, reply])).acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(3.0)
    assert found.per_step == pytest.approx(1 + 40 / 60)
    assert found.joint == pytest.approx((0.9, 0.7, 0.4))


def test_server_info_is_an_average_and_says_so(read: Read) -> None:
    info = json.dumps({"version": "0.5.9", "internal_states": [{"avg_spec_accept_length": 2.71}]})
    (reading,) = read(info, told=Told(break_even=1.95)).readings
    assert reading.acceptance is not None
    assert (reading.version, reading.acceptance.accept_length) == ("0.5.9", 2.71)
    assert "average" in reading.acceptance.basis
    (speed,) = [one for one in reading.findings if one.code == "decode-speedup"]
    assert speed.confidence == "low"
    assert "how sure is not known" in speed.evidence[0]


def test_the_floor_is_seen_in_replies(read_one: ReadOne) -> None:
    dead = {"meta_info": {**NEW, "spec_num_correct_drafts": 0, "completion_tokens": 101}}
    assert "accept-length-at-floor" in codes(read_one(json.dumps([dead] * 3)))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"meta_info": {"spec_verify_ct": "many"}}),
        json.dumps({"meta_info": {"spec_verify_ct": -3}}),
        json.dumps({"meta_info": {"spec_verify_ct": 0}}),
        json.dumps({"avg_spec_accept_length": None}),
        '{"spec_verify_ct": 1' + "[" * 5000,
        '{"spec_verify_ct": ' + "9" * 6000 + "}",
    ],
)
def test_nonsense_is_one_clear_error(read_one: ReadOne, text: str) -> None:
    with pytest.raises(UsageError, match="no reply in it says how many drafts"):
        read_one(text)


def test_replies_that_hold_nonsense_are_counted_beside_the_others(read_one: ReadOne) -> None:
    text = json.dumps([{"meta_info": NEW}, {"meta_info": {**NEW, "spec_num_correct_drafts": -1}}])
    reading = read_one(text)
    assert reading.num_lines == 1
    assert "lines-not-understood" in codes(reading)
