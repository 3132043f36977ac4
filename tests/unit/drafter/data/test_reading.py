"""Reading training files: what comes out, and that every kind of damage names file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id, read_prompt_records, write_prompt_records
from breakeven.drafter.data.reading import ReadReport, read_header, read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import SCHEMA_VERSION, AnswerRecord, Header, Sampling
from breakeven.errors import DataError


def answer(number: int, **changes: Any) -> AnswerRecord:
    fields: dict[str, Any] = {
        "id": f"p{number}-0",
        "prompt_id": f"p{number}",
        "kind": "custom",
        "topic": None,
        "split": "train",
        "messages": ({"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": "yes"}),
        "tokens": "exact",
        "token_ids": (1, 2, 3, 4, number % 200),
        "num_prompt_tokens": 3,
        "sampling": Sampling(temperature=0.0, top_p=1.0),
        "finish_reason": "stop",
        "looping": None,
    }
    return AnswerRecord(**(fields | changes))


def write(path: Path, target: TargetFiles | None, *records: AnswerRecord | bytes) -> Path:
    header = Header(target=target.identity if target is not None else None, settings={})
    lines = [record if isinstance(record, bytes) else record.line() for record in records]
    path.write_bytes(header.line() + b"".join(lines))
    return path


def read(path: Path, **options: Any) -> list[Sample]:
    return list(read_samples(path, **({"split": "train"} | options)))


def test_one_side_only_and_everything_else_is_counted(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = write(
        tmp_path / "train.jsonl",
        target,
        answer(1),
        answer(2, split="held_out"),
        b'{"id": "p3-0", "skipped": "too long"}\n',
        b"\n",
        answer(4, looping="loop: la la"),
    )
    report = ReadReport()
    samples = read(path, target=target, keep_looping=False, report=report)
    assert samples == [
        Sample(
            sample_id="p1",
            kind="custom",
            token_ids=(1, 2, 3, 4, 1),
            loss_mask=(False, False, False, True, True),
            num_prompt_tokens=3,
        )
    ]
    assert dict(report.left_out) == {"other side of the split": 1, "skipped": 1, "looping": 1}
    assert (report.num_samples, report.num_tokens, report.num_answer_tokens) == (1, 5, 2)


def test_longer_samples_are_cut_dropped_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", None, answer(1), answer(2, token_ids=(1, 2, 3, 4, 5, 6, 7)))
    report = ReadReport()
    assert [sample.token_ids for sample in read(path, max_tokens=6, report=report)] == [(1, 2, 3, 4, 1), (1, 2, 3, 4, 5, 6)]
    assert report.num_cut == 1
    assert [sample.sample_id for sample in read(path, max_tokens=6, longer="drop")] == ["p1"]
    with pytest.raises(DataError, match=r"t.jsonl, line 3: 7 tokens, more than the 6 asked for"):
        read(path, max_tokens=6, longer="refuse")
    # nothing of the answer would be left
    assert read(path, max_tokens=3) == []


def test_answers_without_ids_need_the_target(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = write(tmp_path / "t.jsonl", None, answer(1, tokens="none", token_ids=(), num_prompt_tokens=0))
    with pytest.raises(DataError, match=r"line 2: no token ids; give the target's folder"):
        read(path)
    (sample,) = read(path, target=target)
    messages = answer(1).messages
    assert sample.token_ids[: sample.num_prompt_tokens] == target.prompt_ids(messages[:1])
    assert target.tokenizer.text_of(sample.token_ids[sample.num_prompt_tokens :]) == "yes"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": (1, 2, 3, 4, 5000)}, "token id 5000 lies outside the vocabulary of 276 tokens"),
        ({"token_ids": (1, -2, 3, 4)}, "token id -2 lies outside"),
        ({"token_ids": (1, 2.5, 3, 4)}, "no whole number"),
        ({"token_ids": (1, True, 3, 4)}, "no whole number"),
        ({"token_ids": "1 2 3"}, "should be a list"),
        ({"num_prompt_tokens": 5}, "the loss mask would cover nothing"),
        ({"num_prompt_tokens": 0}, "the loss mask would cover everything"),
        ({"num_prompt_tokens": 2.0}, "whole number"),
        ({"split": "test"}, "expected \"train\" or \"held_out\""),
        ({"split": ["train"]}, "expected \"train\" or \"held_out\""),
        ({"prompt_id": 7}, "expected \"train\" or \"held_out\", and text"),
        ({"kind": None}, "expected text"),
    ],
)  # fmt: skip
def test_samples_that_contradict_themselves_are_named(
    tmp_path: Path, make_chat_target: Callable[..., TargetFiles], change: dict[str, Any], message: str
) -> None:
    target = make_chat_target()
    path = write(tmp_path / "t.jsonl", target, answer(1), answer(2, **change))
    with pytest.raises(DataError, match=rf"t.jsonl, line 3: .*{message}"):
        read(path, target=target)


def test_broken_lines_are_named(tmp_path: Path) -> None:
    for line, message in (
        (b"{oh", "line 3: not JSON .*cut off"),
        (b"{oh\n", "line 3: not JSON"),
        (b"[1]\n", "line 3: not a JSON object"),
        (b"{}\n", "line 3: 'prompt_id' is missing"),
        (b"\xff\xfe\n", "line 3: not JSON"),
        (b"[" * 100_000 + b"\n", "line 3: not JSON"),
    ):
        path = write(tmp_path / "t.jsonl", None, answer(1), line)
        with pytest.raises(DataError, match=message):
            read(path)


def test_a_prompt_on_both_sides_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", None, answer(1), answer(1, split="held_out"))
    for split in ("train", "held_out"):
        with pytest.raises(DataError, match=r"line 3: prompt p1 stands on both sides of the split"):
            read(path, split=split)


def test_another_target_is_refused(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target, other = make_chat_target(), make_chat_target("marked", "other")
    path = write(tmp_path / "t.jsonl", target, answer(1))
    assert len(read(path, target=target.identity)) == 1
    with pytest.raises(DataError, match="has another chat template; a drafter learns the target whose answers these are"):
        read(path, target=other)
    (other.folder / "chat_template.jinja").write_text(target.template.source)
    same_template = TargetFiles.from_folder(other.folder)
    assert len(read(path, target=same_template)) == 1
    config = orjson.loads((other.folder / "config.json").read_bytes())
    (other.folder / "config.json").write_bytes(orjson.dumps(config | {"rope_theta": 5.0}))
    with pytest.raises(DataError, match="has another weights or configuration"):
        read(path, target=TargetFiles.from_folder(other.folder))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "empty"),
        (b"{}\n", "not the header of training data"),
        (b'{"breakeven": "training data", "schema_version": 99}\n', "schema 99, this version reads 1; update"),
        (b'{"breakeven": "training data", "schema_version": 0}\n', "make it again"),
        (b'{"breakeven": "training data", "schema_version": 1, "target": {"name": 1}, "settings": {}}\n', "damaged header"),
        (b'{"breakeven": "training data", "schema_version": 1}\n', "damaged header"),
        (b'["breakeven"]\n', "not the header"),
        (b'{"prompt": "hello"}\n', "not the header"),
    ],
)
def test_files_that_are_no_training_files(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line)
    with pytest.raises(DataError, match=message):
        read_header(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_header(tmp_path / "nothing.jsonl")
    assert SCHEMA_VERSION == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=8,
    ),
    st.sampled_from(["prompt_id", "split", "kind", "looping", "token_ids", "num_prompt_tokens", "messages"]),
)
def test_any_value_is_a_sample_or_one_clear_error(tmp_path: Path, value: object, key: str) -> None:
    record = orjson.loads(answer(1).line())
    record[key] = value
    path = write(tmp_path / "t.jsonl", None, orjson.dumps(record) + b"\n")
    found = ""
    try:
        read(path, keep_looping=False)
    except DataError as error:
        found = str(error)
    assert not found or "t.jsonl, line 2: " in found


def test_prompt_files_hold_what_was_written_and_name_what_was_edited(tmp_path: Path) -> None:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"})
    record = PromptRecord(id=prompt_id(messages), kind="chat", messages=messages, split="held_out", source="file", topic="t")
    path = tmp_path / "prompts.jsonl"
    write_prompt_records(path, [record])
    assert read_prompt_records(path) == (record,)
    good = orjson.loads(path.read_bytes())
    for change, message in (
        ({"id": "0"}, "the line was edited"),
        ({"split": None}, 'expected "train" or "held_out"'),
        ({"messages": [{"role": "user", "content": 3}]}, 'message 1 has "content" 3; expected text'),
        ({"messages": [{"role": "bot", "content": "x"}]}, "expected one of system, user"),
        ({"messages": []}, "expected a list of objects"),
        ({"messages": [*messages, {"role": "assistant", "content": "x"}]}, "the last message is the assistant's"),
    ):
        path.write_bytes(orjson.dumps(good) + b"\n" + orjson.dumps(good | change) + b"\n")
        with pytest.raises(DataError, match=rf"prompts.jsonl, line 2: .*{message}"):
            read_prompt_records(path)
    path.write_bytes((orjson.dumps(good) + b"\n") * 2)
    with pytest.raises(DataError, match="the same prompt as an earlier line"):
        read_prompt_records(path)
    path.write_bytes(b"\n")
    with pytest.raises(DataError, match="no prompts in it"):
        read_prompt_records(path)
