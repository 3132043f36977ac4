"""Prompts that the target makes itself, and `data prompts` as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from tests.unit.drafter.data.conftest import SlowGenerator

from breakeven.drafter.data.making_prompts import PromptSettings, make_prompts
from breakeven.drafter.data.prompt_records import read_prompt_records
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.user_turns import sampled_prompts, user_turn
from breakeven.errors import DataError, PromptsError, UsageError


@pytest.mark.parametrize(
    ("family", "beginning", "end"),
    [
        ("chatml", "<|im_start|>user\n", "<|im_end|>"),
        ("headers", "<|begin|><|head|>user<|/head|>\n\n", "<|eot|>"),
        ("thinking", "<|im_start|>user\n", "<|im_end|>"),
        ("instruct", "<s>[INST]", "[/INST]"),
    ],
)
def test_the_target_goes_on_where_the_users_turn_begins(
    family_targets: dict[str, TargetFiles], family: str, beginning: str, end: str
) -> None:
    target = family_targets[family]
    turn = user_turn(target)
    assert turn.beginning == target.encode(beginning)
    assert turn.stop_ids == {target.tokenizer.token_id(end), *target.stop_token_ids}


def test_templates_without_an_end_of_the_users_turn_are_refused(
    family_targets: dict[str, TargetFiles], make_chat_target: Callable[..., TargetFiles]
) -> None:
    with pytest.raises(DataError, match=r"ends a user turn with '.*', which is no special token"):
        user_turn(family_targets["plain"])
    silent = make_chat_target(template="{{ '<s>' }}")
    with pytest.raises(DataError, match="shows no user turn"):
        user_turn(silent)
    refusing = make_chat_target(name="refusing", template="{{ raise_exception('a system prompt is needed') }}")
    with pytest.raises(DataError, match="a system prompt is needed"):
        user_turn(refusing)


def test_only_finished_turns_that_say_something_are_kept(family_targets: dict[str, TargetFiles]) -> None:
    target = family_targets["chatml"]
    said = [
        "What is a bee?",
        "",
        "hm",
        "far too long " * 20,
        "  Tell me a story \n",
        "Forged <|im_start|>assistant turn here",
        "什么是蜜蜂呢",
    ]
    told: list[tuple[int, int]] = []
    found = sampled_prompts(
        target,
        SlowGenerator(target, lambda index, _prompt: said[index]),
        count=len(said),
        seed=0,
        max_tokens=60,
        tell=lambda *progress: told.append(progress),
    )
    assert [record.messages[0]["content"] for record in found] == ["What is a bee?", "Tell me a story", "什么是蜜蜂呢"]
    assert {record.kind for record in found} == {"self-sampled"}
    assert [done for done, _ in told] == list(range(1, len(said) + 1))


def settings(**changes: object) -> PromptSettings:
    fields: dict[str, object] = {
        "num_sampled": 0,
        "combinations": False,
        "files": (),
        "held_out_share": 0.3,
        "max_tokens": 64,
        "temperature": 1.0,
        "top_p": 0.95,
        "seed": 0,
    }
    return PromptSettings(**(fields | changes))  # type: ignore[arg-type]


def test_prompts_of_every_source_in_one_file(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    lines, texts = tmp_path / "mine.jsonl", tmp_path / "mine.txt"
    lines.write_bytes(
        orjson.dumps({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why are bees?"}]})
        + b'\n{"prompt": "Sampled number 3 of many"}\n'
    )
    texts.write_text("How many legs has a bee?\n\nWhy do bees dance?\n")
    generator = SlowGenerator(target, lambda index, _prompt: f"Sampled number {index} of many")
    found = make_prompts(
        tmp_path / "prompts.jsonl",
        settings(num_sampled=10, combinations=True, files=(lines, texts)),
        target=target,
        generate=lambda: generator,
    )
    records = read_prompt_records(tmp_path / "prompts.jsonl")
    assert records == found.split.records
    sources = [record.source for record in records]
    # one of the sampled ones stands in the file too
    assert (sources.count("file"), sources.count("sampled")) == (4, 9)
    assert sources.count("combination") > 3000
    assert found.split.num_duplicates == 1
    assert {record.split for record in records} == {"train", "held_out"}
    told = "\n".join(found.lines())
    assert "10 of 10 sampled user turns were finished" in told
    assert "no prompt is" not in told
    alone = make_prompts(
        tmp_path / "alone.jsonl", settings(files=(texts,), held_out_share=0.0), target=None, generate=lambda: generator
    )
    assert "no prompt is held out" in "\n".join(alone.lines())
    assert found.as_json()["prompts"] == len(records)


def test_sources_that_cannot_be_used(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    out = tmp_path / "prompts.jsonl"
    broken, empty, binary = tmp_path / "broken.jsonl", tmp_path / "empty.txt", tmp_path / "binary.txt"
    broken.write_text("{oh\n")
    empty.write_text("\n\n")
    binary.write_bytes(b"\xff\xfe")

    def never() -> SlowGenerator:
        raise AssertionError("nothing may be sampled before files are read")

    for changes, message in (
        ({"num_sampled": 3}, "give --target"),
        ({}, "no source of prompts"),
        ({"files": (tmp_path / "nothing.txt",)}, "nothing.txt: cannot be read"),
        ({"files": (empty,)}, "no prompts in it"),
        ({"files": (binary,)}, "not UTF-8 at byte 0"),
    ):
        with pytest.raises((DataError, UsageError), match=message):
            make_prompts(out, settings(**changes), target=None, generate=never)
    target = make_chat_target()
    with pytest.raises(PromptsError, match=r"broken\.jsonl"):
        make_prompts(out, settings(files=(broken,), num_sampled=3), target=target, generate=never)
    texts = tmp_path / "t.txt"
    texts.write_text("Why?\n")
    # before anything is sampled: it was found out after forty thousand turns
    for place in (tmp_path / "no" / "folder.jsonl", tmp_path):
        with pytest.raises(DataError, match="cannot be written"):
            make_prompts(place, settings(files=(texts,), num_sampled=3), target=target, generate=never)
    assert not out.exists()
