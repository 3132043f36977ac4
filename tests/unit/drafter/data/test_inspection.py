"""A training file looked over: figures counted by hand, every doubt raised and not raised, hostile text kept harmless."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from breakeven.cli.data_shown import show_inspection, show_samples
from breakeven.drafter.data.inspection import Inspection, inspect_training_file
from breakeven.drafter.data.marked_samples import MarkedSample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import AnswerRecord, Header, Sampling
from breakeven.errors import DataError


def answer(target: TargetFiles, number: int, text: str = "yes", **changes: Any) -> AnswerRecord:
    question = ({"role": "user", "content": changes.pop("asked", f"Question {number} about item {number * 7919}?")},)
    prompt_ids = target.prompt_ids(question)
    fields: dict[str, Any] = {
        "id": f"p{number}-0",
        "prompt_id": f"p{number}",
        "kind": "custom",
        "topic": None,
        "split": "train",
        "messages": (*question, {"role": "assistant", "content": text}),
        "tokens": "exact",
        "token_ids": (*prompt_ids, *target.encode(text), *target.stop_token_ids),
        "num_prompt_tokens": len(prompt_ids),
        "sampling": Sampling(temperature=0.7, top_p=0.95),
        "finish_reason": "stop",
        "looping": None,
    }
    return AnswerRecord(**(fields | changes))


def write(path: Path, target: TargetFiles, *records: AnswerRecord | bytes) -> Path:
    lines = [record if isinstance(record, bytes) else record.line() for record in records]
    path.write_bytes(Header(target=target.identity, settings={"max_tokens": 9}).line() + b"".join(lines))
    return path


def look(path: Path, target: TargetFiles, **options: Any) -> tuple[Inspection, tuple[MarkedSample, ...]]:
    return inspect_training_file(path, target, **options)


def shown(found: Inspection, samples: tuple[MarkedSample, ...]) -> str:
    console = Console(file=io.StringIO(), width=132)
    show_inspection(found, console)
    show_samples(samples, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_figures(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    greedy = Sampling(temperature=0.0, top_p=1.0)
    path = write(
        tmp_path / "train.jsonl",
        target,
        answer(target, 1, kind="code"),
        answer(target, 2, sampling=greedy, looping="loop: la"),
        answer(target, 3, "no and no and no", split="held_out", finish_reason="length"),
        b'{"id": "p4-0", "skipped": "too long"}\n',
    )
    found, samples = look(path, target)
    assert (found.num_answers, found.num_prompts, found.num_answer_tokens) == (3, 3, 4 + 4 + 17)
    assert {kind: (side.train, side.held_out, side.looping) for kind, side in found.kinds.items()} == {
        "code": (1, 0, 0),
        "custom": (1, 1, 1),
    }
    assert found.sampling == {"greedy": 1, "sampled": 2}
    assert found.looping_share == {"greedy": 1.0, "sampled": 0.0, "all": pytest.approx(1 / 3)}
    assert found.finish_reasons == {"stop": 2, "length": 1}
    assert found.skipped == {"too long": 1}
    assert found.num_equal_answers == 2
    assert (found.num_rendered, found.num_rendered_otherwise) == (3, 0)
    assert found.answer_lengths is not None
    assert (found.answer_lengths.median, found.answer_lengths.longest, sum(found.answer_lengths.bin_counts)) == (4, 17, 3)
    assert found.num_near_held_out == 0
    assert [sample.split for sample in samples] == ["train", "train", "held_out"]
    (doubt,) = found.doubts
    assert "33% of the answers loop" in doubt.what
    assert Inspection.model_validate_json(found.model_dump_json()) == found


def test_what_the_target_wrote_is_marked_without_colour_too(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = write(tmp_path / "train.jsonl", target, answer(target, 1, "yes\nindeed"))
    text = shown(*look(path, target))
    assert "<|im_start|>assistant\n⟦yes\nindeed<|im_end|>⟧\n" in text
    assert "⟦" not in text.partition("<|im_start|>user")[2].partition("assistant\n")[0]
    colour = Console(file=io.StringIO(), width=132, force_terminal=True, color_system="standard")
    show_samples(look(path, target)[1], colour)
    assert "\x1b[32m⟦yes" in colour.file.getvalue()  # type: ignore[attr-defined]


def test_model_text_cannot_steer_the_terminal(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    hostile = "\x1b]0;title\x07 \x1b[2J [bold red]x[/] \u202e \r overwritten"
    path = write(
        tmp_path / "train.jsonl",
        target,
        answer(target, 1, hostile, kind=f"k{hostile}"),
        f'{{"id": "x", "skipped": "\\u001b[31m{"r" * 500}"}}\n'.encode(),
    )
    text = shown(*look(path, target))
    assert not set(text) & set("\x1b\x07\r\u202e")
    assert "[bold red]x[/]" in text


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"tokens": "rendered"}, "4 of 8 answers have no ids of the target's own"),
        ({"finish_reason": "length"}, None),
        ({"looping": "loop: x"}, "50% of the answers loop"),
        ({"topic": "bees"}, None),
    ],
)
def test_doubts_are_raised_when_there_is_reason(
    tmp_path: Path, make_chat_target: Callable[..., TargetFiles], changes: dict[str, Any], doubt: str | None
) -> None:
    target = make_chat_target()
    plain = [answer(target, number, f"a{number}", split="held_out" if number == 0 else "train") for number in range(4)]
    changed = [answer(target, number, f"a{number}", **changes) for number in range(4, 8)]
    found, _ = look(write(tmp_path / "train.jsonl", target, *plain, *changed), target)
    assert [entry.what for entry in found.doubts if doubt is None or doubt not in entry.what] == []
    assert len(found.doubts) == (doubt is not None)


def test_doubts_about_the_split(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    asked = "Could you tell me how many legs a bee has, please, and why"
    trained = answer(target, 1, asked=asked + "?")
    twin = answer(target, 2, "no", asked=asked + " indeed?", split="held_out")
    found, _ = look(write(tmp_path / "a.jsonl", target, trained, twin), target)
    assert [entry.what for entry in found.doubts] == [
        "1 held-out prompts have a near-duplicate in training: accept lengths on them flatter"
    ]
    # prompts of one instruction are alike, their topics are not
    topical = answer(target, 2, "no", asked=asked + " indeed?", split="held_out", topic="bees")
    assert look(write(tmp_path / "b.jsonl", target, trained, topical), target)[0].doubts == ()
    alone, _ = look(write(tmp_path / "c.jsonl", target, trained), target)
    assert [entry.what for entry in alone.doubts] == ["there are no held-out answers"]
    assert alone.coverage == ()


def test_prompts_rendered_otherwise_are_a_doubt(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    other = answer(target, 1)
    moved = answer(target, 1, token_ids=(5, *other.token_ids), num_prompt_tokens=other.num_prompt_tokens + 1)
    path = write(tmp_path / "a.jsonl", target, moved, answer(target, 2, "no", split="held_out"))
    (doubt,) = look(path, target)[0].doubts
    assert doubt.what.startswith("1 of the first 2 prompts are rendered otherwise by this target's template")


def test_samples_beyond_the_context_are_a_doubt(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target(context_length=100)
    path = write(tmp_path / "a.jsonl", target, answer(target, 1, "yes and no " * 20), answer(target, 2, "no", split="held_out"))
    (doubt,) = look(path, target)[0].doubts
    assert doubt.what == "1 samples are longer than the target's context of 100 tokens, and are cut there"


def test_one_prompt_is_shown_by_its_id(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    path = write(tmp_path / "a.jsonl", target, *(answer(target, number, f"a{number}") for number in range(9)))
    assert [sample.sample_id for sample in look(path, target, only="p5")[1]] == ["p5"]
    assert [sample.sample_id for sample in look(path, target, only="p5-0")[1]] == ["p5"]
    assert look(path, target, show=0)[1] == ()
    with pytest.raises(DataError, match="no answer to a prompt 'p77'"):
        look(path, target, only="p77")


def test_broken_records_are_named(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    good = orjson.loads(answer(target, 1).line())
    for change in (
        {"messages": []},
        {"sampling": {}},
        {"kind": None},
        {"topic": {}, "prompt_id": 3},
        {"messages": [{"role": "user"}]},
    ):
        path = write(tmp_path / "a.jsonl", target, orjson.dumps(good | change) + b"\n")
        with pytest.raises(DataError, match=r"a\.jsonl, line 2: "):
            look(path, target)
