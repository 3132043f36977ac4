"""Near-duplicates stay on one side of the split, held-out topics out of training; the same prompts fall the same way every time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.drafter.data.combinations import combined_prompts, held_out_topics
from breakeven.drafter.data.near_duplicates import MIN_SIMILARITY, group_near_duplicates, near_any, signatures
from breakeven.drafter.data.prompt_records import PromptRecord, normalised, prompt_id
from breakeven.drafter.data.splitting import split_prompts

_LETTERS = random.Random(0)
WORDS = ["".join(_LETTERS.choices("abcdefghijklmnoprstuvw", k=3 + number % 6)) for number in range(600)]


def free(text: str) -> PromptRecord:
    messages = ({"role": "user", "content": text},)
    return PromptRecord(id=prompt_id(messages), kind="self-sampled", messages=messages, split="train", source="sampled")


def sentence(rng: random.Random, length: int = 16) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def shingles(text: str) -> set[bytes]:
    data = f" {normalised(text)} ".encode()
    return {data[place : place + 6] for place in range(len(data) - 5)}


def similarity(a: str, b: str) -> float:
    first, second = shingles(a), shingles(b)
    return len(first & second) / len(first | second)


def changed(rng: random.Random, text: str) -> str:
    words = text.split()
    words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words).capitalize() + "?"


def test_a_word_changed_is_a_near_duplicate_and_other_text_is_not() -> None:
    rng = random.Random(1)
    texts = [sentence(rng) for _ in range(300)]
    twins = [changed(rng, text) for text in texts]
    groups = group_near_duplicates(signatures(texts + twins))
    assert groups[:300] == list(range(300))
    assert groups[300:] == groups[:300]
    assert near_any(signatures(twins), signatures(texts)).all()
    assert not near_any(signatures([sentence(rng) for _ in range(300)]), signatures(texts)).any()


def test_groups_agree_with_exact_similarity() -> None:
    rng = random.Random(2)
    texts = [sentence(rng, 20) for _ in range(40)]
    for text in texts[:40]:
        for share in (2, 5, 10):
            words = text.split()
            for place in rng.sample(range(20), share):
                words[place] = rng.choice(WORDS)
            texts.append(" ".join(words))
    groups = group_near_duplicates(signatures(texts))
    # far from the threshold the estimate must be right for every pair
    for a in range(len(texts)):
        for b in range(a):
            if similarity(texts[a], texts[b]) >= MIN_SIMILARITY + 0.2:
                assert groups[a] == groups[b], (texts[a], texts[b])
    for group in set(groups):
        members = [text for text, found in zip(texts, groups, strict=True) if found == group]
        for text in members:
            assert len(members) == 1 or max(similarity(text, o) for o in members if o is not text) >= MIN_SIMILARITY - 0.2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=30))
def test_any_texts_can_be_grouped(texts: list[str]) -> None:
    groups = group_near_duplicates(signatures(texts))
    assert all(groups[group] == group and group <= index for index, group in enumerate(groups))
    for a, first in enumerate(texts):
        for b, second in enumerate(texts):
            if (normalised(first) or first) == (normalised(second) or second):
                assert groups[a] == groups[b]


def test_no_held_out_prompt_has_a_twin_in_training() -> None:
    rng = random.Random(3)
    texts = [sentence(rng) for _ in range(1500)]
    twins = [changed(rng, text) for text in texts[:700]]
    prompts = [free(text) for text in texts + twins]
    rng.shuffle(prompts)
    found = split_prompts((), prompts, held_out_share=0.2)
    assert len(found.records) == 2200 - found.num_duplicates >= 2190
    sides = {record.messages[0]["content"]: record.split for record in found.records}
    assert all(sides[text] == sides[twin] for text, twin in zip(texts, twins, strict=False))
    num_held_out = sum(record.split == "held_out" for record in found.records)
    assert 300 < num_held_out < 580
    rng.shuffle(prompts)
    again = split_prompts((), prompts, held_out_share=0.2)
    assert {record.messages[0]["content"]: record.split for record in again.records} == sides


def test_duplicates_are_kept_once_and_large_groups_are_learnt_from() -> None:
    rng = random.Random(4)
    base = sentence(rng)
    alike = [free(f"{base} {number}") for number in range(60)]
    others = [free(sentence(rng)) for _ in range(140)]
    for share in (0.2, 0.5):
        found = split_prompts((), [*alike, *others, free(base.upper() + "!"), free(base)], held_out_share=share)
        assert found.num_duplicates == 1
        assert found.num_groups == 1
        assert {record.split for record in found.records if base in str(record.messages[0]["content"])} == {"train"}


def test_combinations_fall_by_topic_and_take_free_prompts_along() -> None:
    combinations = combined_prompts()
    held_out = {topic.name for topic in held_out_topics()}
    assert len({record.id for record in combinations}) == len(combinations)
    sides: dict[str | None, set[str]] = {}
    for record in combinations:
        sides.setdefault(record.topic, set()).add(record.split)
    assert all(len(found) == 1 for found in sides.values())
    # a held-out topic is not spoken of in any training combination
    subjects = [topic.name for topic in held_out_topics() if topic.about == "subject"]
    for record in combinations:
        if record.split == "train":
            text = f" {normalised(str(record.messages[0]['content']))} "
            assert not [name for name in subjects if f" {normalised(name)} " in text], text
    # one whose words are mostly its topic's: a short topic in a long instruction is near to the same instruction's held-out topics
    trained = next(record for record in combinations if record.split == "train" and record.kind == "summary")
    reserved = next(record for record in combinations if record.split == "held_out" and record.kind == "summary")
    near_trained, near_reserved = (f"{record.messages[0]['content']} Please." for record in (trained, reserved))
    topic = sorted(held_out)[0]
    prompts = [free(near_trained), free(near_reserved), free(f"I have always wondered what {topic} is all about, you know")]
    found = split_prompts(combinations, prompts, held_out_share=0.5)
    added = [record for record in found.records if record.source == "sampled"]
    assert [(record.messages[0]["content"], record.split) for record in added] == [(near_trained, "train")]
    assert found.num_dropped == 2


def test_shipped_combinations_are_of_many_kinds() -> None:
    combinations = combined_prompts()
    kinds = {record.kind for record in combinations}
    assert {"explanation", "list", "code", "maths", "story", "dialogue", "summary", "translation", "extraction"} <= kinds
    assert all("{topic}" not in str(record.messages[0]["content"]) for record in combinations)
    share = sum(record.split == "held_out" for record in combinations) / len(combinations)
    assert 0.1 < share < 0.3
    assert len(held_out_topics()) >= 20


@pytest.mark.parametrize(("one", "other"), [("What is  LOVE?", "what is love"), ("naïve ﬁne", "NAÏVE fine")])
def test_spellings_of_one_prompt_have_one_id(one: str, other: str) -> None:
    assert free(one).id == free(other).id
    assert free("?").id != free("!").id
    assert free(one).id != free(one + " more").id
