from __future__ import annotations

import json
from typing import Any

import pytest

from breakeven.loadgen import stream
from breakeven.loadgen.stream import AnswerStream, StreamError, printable


def event(content: str | None = None, tokens: int | None = None, **more: Any) -> bytes:
    value: dict[str, Any] = {"choices": [{"delta": {"content": content}, "finish_reason": more.pop("finish_reason", None)}]}
    if tokens is not None:
        value["usage"] = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    return b"data: " + json.dumps(value | more).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def test_tokens_are_counted_by_usage_not_by_chunks() -> None:
    answer = AnswerStream()
    answer.feed(event("", 0), 0.9)  # the role chunk is no token
    answer.feed(event("a", 1), 1.0)
    answer.feed(event("bcd", 4), 2.0)
    answer.feed(event("", 4, finish_reason="stop"), 2.1)
    answer.feed(DONE, 2.2)
    answer.end()
    assert answer.arrivals == [(1.0, 1), (2.0, 4)]
    assert answer.first_token_s == 1.0
    assert (answer.prompt_tokens, answer.output_tokens, answer.finish_reason, answer.text) == (5, 4, "stop", "abcd")


def test_events_read_together_are_one_arrival() -> None:
    answer = AnswerStream()
    answer.feed(event("a", 1) + event("b", 2) + event("c", 5), 1.0)
    answer.feed(event("d", 6), 2.0)
    assert answer.arrivals == [(1.0, 5), (2.0, 6)]


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_pieces_of_any_size_say_the_same(size: int) -> None:
    body = event("é", 1).replace(b"\n", b"\r\n") + b": ping\n\n" + b"event: x\n" + event("漢字", 3, finish_reason="length") + DONE
    whole, pieces = AnswerStream(), AnswerStream()
    whole.feed(body, 1.0)
    for start in range(0, len(body), size):
        pieces.feed(body[start : start + size], 1.0)
    pieces.end()
    assert pieces.text == whole.text == "é漢字"
    assert pieces.arrivals == whole.arrivals == [(1.0, 3)]
    assert pieces.finish_reason == "length"


def test_usage_at_the_end_only_gives_two_arrivals() -> None:
    answer = AnswerStream()
    answer.feed(event(""), 0.5)
    for time_s in (1.0, 2.0, 3.0):
        answer.feed(event("x"), time_s)
    answer.feed(event("", finish_reason="stop"), 3.1)
    answer.feed(b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}\n\n' + DONE, 3.5)
    answer.end()
    assert answer.first_token_s == 1.0
    assert answer.arrivals == [(1.0, 1), (3.0, 9)]


def test_usage_at_the_end_of_a_one_chunk_answer() -> None:
    answer = AnswerStream()
    answer.feed(event("all of it", finish_reason="stop"), 1.0)
    answer.feed(b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}\n\n' + DONE, 1.0)
    answer.end()
    assert answer.arrivals == [(1.0, 4)]


def test_a_first_token_without_text_counts() -> None:
    """Half of a character is a token already, and prints nothing."""
    answer = AnswerStream()
    answer.feed(event("", 1), 1.0)
    answer.feed(event("é", 2), 2.0)
    assert answer.first_token_s == 1.0
    assert answer.arrivals == [(1.0, 1), (2.0, 2)]


def test_reasoning_is_text() -> None:
    answer = AnswerStream()
    answer.feed(b'data: {"choices": [{"delta": {"reasoning_content": "hm "}}]}\n\n' + event("yes"), 1.0)
    assert answer.text == "hm yes"
    assert answer.first_token_s == 1.0


@pytest.mark.parametrize(
    "payload",
    [
        b"not json",
        b"[1]",
        b"3",
        b"null",
        b'{"choices": 3}',
        b'{"choices": [[]]}',
        b'{"choices": [{"delta": {"content": 3}}]}',
        b'{"choices": [{"delta": {"content": "x"}, "finish_reason": 3}]}',
        b'{"usage": 7}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": "3"}}',
        b'{"usage": {"prompt_tokens": true, "completion_tokens": 3}}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": -3}}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": 3.5}}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": 3000000000}}',  # beyond what the store keeps
        b'{"usage": {"prompt_tokens": 1' + b"0" * 30 + b', "completion_tokens": 3}}',
        b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1}}',  # backwards: 2 were counted before
        b"\xff\xfe",
    ],
)
def test_malformed_events_are_refused(payload: bytes) -> None:
    answer = AnswerStream()
    answer.feed(event("ab", 2), 1.0)
    with pytest.raises(StreamError, match=r"^malformed event: "):
        answer.feed(b"data: " + payload + b"\n\n", 2.0)
    assert answer.arrivals == [(1.0, 2)]


def test_errors_in_the_stream_are_told() -> None:
    with pytest.raises(StreamError, match=r"^error in the stream: out of memory$"):
        AnswerStream().feed(b'data: {"error": {"message": "out of\\u001b\\n memory", "code": 500}}\n\n', 1.0)
    with pytest.raises(StreamError, match=r"^error in the stream: bad day$"):
        AnswerStream().feed(b'data: {"error": "bad day"}\n\n', 1.0)
    with pytest.raises(StreamError, match=r"^error in the stream: \{.code.:500\}$"):
        AnswerStream().feed(b'data: {"error": {"code": 500}}\n\n', 1.0)


def test_a_stream_that_stops_early_is_no_answer() -> None:
    answer = AnswerStream()
    answer.feed(event("a", 1) + event("b", 2), 1.0)
    with pytest.raises(StreamError, match="ended early, after 2 tokens"):
        answer.end()


def test_a_server_that_counts_nothing_is_refused() -> None:
    answer = AnswerStream()
    answer.feed(event("a", finish_reason="stop") + DONE, 1.0)
    with pytest.raises(StreamError, match="no usage counts"):
        answer.end()


def test_an_empty_answer_is_an_answer() -> None:
    answer = AnswerStream()
    answer.feed(event("", 0, finish_reason="stop") + DONE, 1.0)
    answer.end()
    assert (answer.arrivals, answer.first_token_s, answer.text) == ([], None, "")


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_EVENT_BYTES", 1000)
    answer = AnswerStream()
    answer.feed(b"data: " + b"x" * 900, 1.0)
    with pytest.raises(StreamError, match="more than 1000 bytes"):
        answer.feed(b"x" * 100, 1.0)


def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_TEXT_CHARS", 10)
    answer = AnswerStream()
    answer.feed(event("12345", 1) + event("67890", 2), 1.0)
    with pytest.raises(StreamError, match="more than 10 characters"):
        answer.feed(event("1", 3), 2.0)


def test_printable_is_one_short_safe_line() -> None:
    assert printable("a\x1b[31m\n\tb\u202e c") == "a [31m b c"
    assert len(printable("x" * 10_000)) == 160


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        ({"sglext": {"spec_tokens_details": {"spec_verify_ct": 3, "spec_accept_rate": 0.5, "histogram": [1, 2]}}},
         {"spec_verify_ct": 3, "histogram": [1, 2]}),
        ({"metrics": {"speculative_decoding": {"num_spec_steps": 3, "per_step_accepted": None}}}, {"num_spec_steps": 3}),
        ({"metrics": {"time_to_first_token_ms": 3.0}}, None),
        ({"metrics": None, "sglext": None}, None),
        ({"sglext": {"spec_tokens_details": [{"spec_verify_ct": 3}]}}, None),
        ({"sglext": {"spec_tokens_details": {"spec_verify_ct": -3, "a": True, "b": [1] * 200, "c": "x", "d": {}}}}, None),
    ],
)  # fmt: skip
def test_counts_that_come_with_an_answer(event: dict[str, object], kept: dict[str, object] | None) -> None:
    answer = AnswerStream()
    answer.feed(b"data: " + json.dumps({"choices": [], **event}).encode() + b"\n\n", 1.0)
    assert answer.speculation == kept
