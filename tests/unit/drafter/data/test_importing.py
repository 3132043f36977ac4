"""Conversations that the target wrote already: every turn of it in the mask, one side of the split for what begins alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breakeven.drafter.data.importing import import_conversations
from breakeven.drafter.data.inspection import inspect_training_file
from breakeven.drafter.data.reading import read_header, read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError


def talk(*contents: str, **extra: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)], **extra}


def write(path: Path, *lines: dict[str, Any] | bytes) -> Path:
    path.write_bytes(b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines))
    return path


def written(target: TargetFiles, sample: Sample) -> str:
    """What the mask marks, with a bar between marked parts."""
    parts, last = [], -2
    for place, (token, marked) in enumerate(zip(sample.token_ids, sample.loss_mask, strict=True)):
        if marked:
            if place != last + 1:
                parts.append([])
            parts[-1].append(token)
            last = place
    return "|".join(target.tokenizer.text_of(part) for part in parts)


def test_every_turn_is_trained_on_or_the_last_only(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    sharegpt = {
        "conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "me"}, {"from": "human", "value": "more"}]
    }
    log = write(tmp_path / "log.jsonl", talk("hello", "hi there", "more", "no", kind="chat"), sharegpt)
    made = import_conversations(tmp_path / "all.jsonl", [log], target, held_out_share=0.0)
    assert (made.num_conversations, made.num_samples, made.num_turned) == (2, 2, 0)
    samples = list(read_samples(tmp_path / "all.jsonl", split="train", target=target))
    assert [(sample.kind, written(target, sample)) for sample in samples] == [("chat", "hi there|no"), ("imported", "me")]
    assert sum(sum(sample.loss_mask) for sample in samples) == made.num_answer_tokens
    first = samples[0]
    assert target.tokenizer.text_of(first.token_ids[first.num_prompt_tokens :]) == "no"
    import_conversations(tmp_path / "last.jsonl", [log], target, turns="last", held_out_share=0.0)
    samples = list(read_samples(tmp_path / "last.jsonl", split="train", target=target))
    assert [written(target, sample) for sample in samples] == ["no", "me"]
    assert read_header(tmp_path / "last.jsonl").target == target.identity


def test_an_edited_history_gives_one_sample_a_turn(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target("thinking")
    conversation = talk("why", "because", "really", "yes")
    for turn in (1, 3):
        conversation["messages"][turn]["reasoning_content"] = "hm"
    made = import_conversations(tmp_path / "t.jsonl", [write(tmp_path / "l.jsonl", conversation)], target, held_out_share=0.0)
    assert (made.num_samples, made.num_turned) == (2, 1)
    samples = list(read_samples(tmp_path / "t.jsonl", split="train", target=target))
    assert [written(target, sample) for sample in samples] == [
        "<think>\nhm\n</think>\n\nbecause",
        "<think>\nhm\n</think>\n\nyes",
    ]


def test_conversations_that_begin_alike_stand_on_one_side(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target(context_length=4096)
    talks = []
    for number in range(60):
        opening = f"Opening {number}: {number * 7919 % 1000} things about {'abcdefghij'[number % 10] * 8}"
        talks += [talk(opening, "ok", f"first way on {number} {'x' * number}", "a"), talk(opening, "ok", "second " * 40, "b")]
    made = import_conversations(tmp_path / "t.jsonl", [write(tmp_path / "l.jsonl", *talks)], target, held_out_share=0.3)
    assert made.num_samples == 120
    sides: dict[tuple[int, ...], set[str]] = {}
    for side in ("train", "held_out"):
        for sample in read_samples(tmp_path / "t.jsonl", split=side, target=target):  # type: ignore[arg-type]
            first_answer = sample.loss_mask.index(True)
            sides.setdefault(sample.token_ids[:first_answer], set()).add(side)
    assert len(sides) == 60
    assert all(len(found) == 1 for found in sides.values())


def test_a_loop_in_any_turn_is_marked(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target(context_length=2048)
    log = write(tmp_path / "l.jsonl", talk("sing", "la la la " * 60, "stop", "all right"), talk("say", "no"))
    import_conversations(tmp_path / "t.jsonl", [log], target, held_out_share=0.0)
    kept = list(read_samples(tmp_path / "t.jsonl", split="train", target=target, keep_looping=False))
    assert [written(target, sample) for sample in kept] == ["no"]
    # where only the last turn is trained on, only that one counts
    import_conversations(tmp_path / "t.jsonl", [log], target, turns="last", held_out_share=0.0)
    assert len(list(read_samples(tmp_path / "t.jsonl", split="train", target=target, keep_looping=False))) == 2


def test_several_answers_to_one_prompt_and_equal_ones(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    log = write(tmp_path / "l.jsonl", talk("who", "me"), talk("who", "you"), talk("who", "me"))
    made = import_conversations(tmp_path / "t.jsonl", [log], target)
    assert (made.num_samples, made.num_equal) == (2, 1)
    found, _ = inspect_training_file(tmp_path / "t.jsonl", target)
    assert found.sampling == {"unknown": 2}
    assert found.token_sources == {"rendered": 2}


def test_what_cannot_be_imported(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target("instruct")
    out = tmp_path / "t.jsonl"
    system = {"messages": [{"role": "system", "content": "x"}, *talk("a", "b")["messages"]]}
    for lines, message in (
        ((b"{oh\n",), "l.jsonl, line 1: not JSON"),
        ((b"[1]\n",), "line 1: not a JSON object"),
        ((talk("a"),), "line 1: no turn of the assistant"),
        ((talk("a", "b"), {"messages": [3]}), "line 2: message 1 is 3; expected an object"),
        (({"conversations": [{"from": "bot", "value": "x"}]},), "expected one of system, user"),
        (({"prompt": "x"},), '"messages" is None'),
        ((b"\n",), "no conversations in it"),
        ((system,), r"nothing to train on in 1 conversations \(.*must alternate"),
    ):
        with pytest.raises(DataError, match=message):
            import_conversations(out, [write(tmp_path / "l.jsonl", *lines)], target)
        assert not out.exists()
    made = import_conversations(out, [write(tmp_path / "l.jsonl", system, talk("a", "b"))], target)
    assert (made.num_samples, made.left_out.total()) == (1, 1)
    assert any("must alternate" in line for line in made.lines())
    with pytest.raises(DataError, match="cannot be written"):
        import_conversations(tmp_path / "no" / "t.jsonl", [tmp_path / "l.jsonl"], target)


@pytest.mark.parametrize("spans", [[[3, 2]], [[0, 2]], [[2, 30]], [[2, 4], [3, 5]], [["a", "b"]], [[2]], 7, [3]])
def test_spans_that_cannot_be_are_named(tmp_path: Path, make_chat_target: Callable[..., TargetFiles], spans: object) -> None:
    target = make_chat_target()
    log = write(tmp_path / "l.jsonl", talk("hello", "hi there", "more", "no"))
    import_conversations(tmp_path / "t.jsonl", [log], target, held_out_share=0.0)
    header, line = (tmp_path / "t.jsonl").read_bytes().splitlines(keepends=True)
    record = orjson.loads(line)
    (begin, end), last = record["earlier_answers"][0], record["num_prompt_tokens"]
    assert 0 < begin < end < last
    (tmp_path / "t.jsonl").write_bytes(header + orjson.dumps(record | {"earlier_answers": spans, "num_prompt_tokens": 20}) + b"\n")
    with pytest.raises(DataError, match=r"t\.jsonl, line 2: "):
        list(read_samples(tmp_path / "t.jsonl", split="train", target=target))


def test_a_conversation_cut_short_keeps_its_earlier_answers(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    log = write(tmp_path / "l.jsonl", talk("hello", "hi there", "more", "no"))
    import_conversations(tmp_path / "t.jsonl", [log], target, held_out_share=0.0)
    (whole,) = read_samples(tmp_path / "t.jsonl", split="train", target=target)
    for length in range(whole.loss_mask.index(True) + 1, len(whole.token_ids)):
        (cut,) = read_samples(tmp_path / "t.jsonl", split="train", target=target, max_tokens=length)
        assert cut.token_ids == whole.token_ids[:length]
        assert cut.loss_mask == whole.loss_mask[:length]
        assert cut.loss_mask[cut.num_prompt_tokens]
        assert not cut.loss_mask[cut.num_prompt_tokens - 1]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
TURNS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": st.text(max_size=8) | JSON_VALUES},
    optional={"reasoning_content": JSON_VALUES, "tool_calls": JSON_VALUES},
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.lists(TURNS, max_size=5) | JSON_VALUES, min_size=1, max_size=3),
    family=st.sampled_from(["thinking", "marked"]),
)
def test_any_conversation_is_a_sample_or_one_clear_error(
    tmp_path: Path, family_targets: dict[str, TargetFiles], lines: list[object], family: str
) -> None:
    target, out = family_targets[family], tmp_path / "t.jsonl"
    out.unlink(missing_ok=True)
    log = write(tmp_path / "l.jsonl", *({"messages": line} for line in lines))
    try:
        made = import_conversations(out, [log], target)
    except DataError:
        assert not out.exists()
    else:
        found = [sample for side in ("train", "held_out") for sample in read_samples(out, split=side, target=target)]  # type: ignore[arg-type]
        assert len(found) == made.num_samples > 0
        inspect_training_file(out, target)
