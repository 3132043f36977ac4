"""The loss mask, by template family: what the target wrote and nothing else, on any text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.drafter.data.conftest import sentencepiece_tokenizer

from breakeven.drafter.data.rendering import Rendered, RenderingError, render_conversation
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import CheckpointError, UsageError

Messages = list[dict[str, Any]]

# Texts with the characters at which tokens and templates go wrong.
TEXT = st.text(st.sampled_from("ab hel:\n\té漢🙂.[]<|>"), min_size=1, max_size=12)
ANSWER = TEXT.filter(lambda text: bool(text.strip()))


def spans(target: TargetFiles, rendered: Rendered) -> list[str]:
    """The text of each answer, special tokens by name."""
    return ["".join(map(shown(target), rendered.token_ids[begin:end])) for begin, end in rendered.answers]


def shown(target: TargetFiles) -> Callable[[int], str]:
    special = target.tokenizer.special_token_ids
    return lambda token: (
        (target.tokenizer.token_name(token) or "") if token in special else target.tokenizer.token_bytes(token).decode("latin-1")
    )


def conversation(*contents: str, system: str | None = None) -> Messages:
    roles = ("user", "assistant")
    messages: Messages = [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]
    return ([{"role": "system", "content": system}] if system is not None else []) + messages


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("chatml", ["one<|im_end|>", "two\n<|im_end|>"]),
        ("headers", ["one<|eot|>", "two<|eot|>"]),
        ("instruct", [" one</s>", " two</s>"]),
        ("marked", ["one<|im_end|>", "two\n<|im_end|>"]),
        ("plain", ["one", "two"]),
    ],
)
def test_every_turn_up_to_its_end_token(family_targets: dict[str, TargetFiles], family: str, expected: list[str]) -> None:
    target = family_targets[family]
    messages = conversation("hello", "one", "more", "two\n")
    rendered = render_conversation(target, messages)
    assert spans(target, rendered) == expected
    last = render_conversation(target, messages, turns="last")
    assert spans(target, last) == expected[-1:]
    assert last.token_ids == rendered.token_ids
    assert sum(rendered.loss_mask) == sum(end - begin for begin, end in rendered.answers)
    assert len(rendered.loss_mask) == rendered.answers[-1][1] == len(rendered.token_ids)


def test_what_stands_before_the_last_answer_is_the_served_prompt(family_targets: dict[str, TargetFiles]) -> None:
    messages = conversation("hello", "one", "more", "two", system="Be brief.")
    for family in ("chatml", "headers", "thinking", "marked"):
        target = family_targets[family]
        rendered = render_conversation(target, messages, turns="last")
        assert rendered.token_ids[: rendered.answers[0][0]] == target.prompt_ids(messages[:-1]), family


@pytest.mark.parametrize("family", ["chatml", "headers", "instruct", "marked"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mask_is_the_answers_on_any_text(family_targets: dict[str, TargetFiles], family: str, data: st.DataObject) -> None:
    target = family_targets[family]
    num_turns = data.draw(st.integers(1, 3))
    contents = [data.draw(TEXT if place % 2 == 0 else ANSWER) for place in range(2 * num_turns)]
    rendered = render_conversation(target, conversation(*contents))
    trims = family in ("headers", "instruct")
    front = " " if family == "instruct" else ""
    expected = [front + (content.strip() if trims else content) for content in contents[1::2]]
    found = [target.tokenizer.text_of(rendered.token_ids[begin:end]) for begin, end in rendered.answers]
    assert found == expected
    for begin, end in rendered.answers:
        assert rendered.token_ids[end - 1] in target.stop_token_ids
        # the prompt of this turn is what a server would have been sent
        assert not target.stop_token_ids.intersection(rendered.token_ids[begin : end - 1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=TEXT, answer=ANSWER)
def test_tokens_do_not_reach_over_the_border_of_a_turn(family_targets: dict[str, TargetFiles], question: str, answer: str) -> None:
    # "assistant:\n" and an answer that begins with a line end: encoded whole, one token would cover both
    target = family_targets["plain"]
    rendered = render_conversation(target, conversation(question, "\n" + answer))
    prompt = target.prompt_ids(conversation(question))
    assert rendered.token_ids[: len(prompt)] == prompt
    assert rendered.answers[0][0] == len(prompt)
    assert target.tokenizer.text_of(rendered.token_ids[len(prompt) :]).startswith("\n")


def test_tokens_that_would_reach_over_are_joined_from_pieces(family_targets: dict[str, TargetFiles]) -> None:
    target = family_targets["plain"]
    whole = target.encode("user:\nhello\nassistant:\n\nyes")
    rendered = render_conversation(target, conversation("hello", "\nyes"))
    assert whole[: len(target.prompt_ids(conversation("hello")))] != target.prompt_ids(conversation("hello"))
    assert target.tokenizer.text_of(rendered.token_ids) == "user:\nhello\nassistant:\n\nyes"


@pytest.mark.parametrize("family", ["chatml", "headers", "instruct", "marked"])
def test_sentencepiece_tokenizers(make_chat_target: Callable[..., TargetFiles], family: str) -> None:
    target = make_chat_target(family, tokenizer=sentencepiece_tokenizer())
    assert not target.tokenizer.is_byte_level
    messages = conversation("are you?", "yes", "really: ", "yes it is")
    rendered = render_conversation(target, messages)
    found = [target.tokenizer.text_of(rendered.token_ids[begin:end]).strip() for begin, end in rendered.answers]
    assert found == ["yes", "yes it is"]
    assert all(rendered.token_ids[end - 1] in target.stop_token_ids for _, end in rendered.answers)
    assert rendered.token_ids[: rendered.answers[-1][0]] == target.prompt_ids(messages[:-1])


def test_a_sentencepiece_token_over_a_border_is_refused_unless_it_is_marked(make_chat_target: Callable[..., TargetFiles]) -> None:
    # "assistant:" is where the prompt ends, and ": " is one token
    plain = (
        "{% for m in messages %}{{ m.role + ':' + m.content + '</s>' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    target = make_chat_target("plain", "plain", template=plain, tokenizer=sentencepiece_tokenizer())
    with pytest.raises(RenderingError, match="a token reaches over the border of a turn"):
        render_conversation(target, conversation("a", " no"))
    assert len(render_conversation(target, conversation("a", "yes")).answers) == 1
    marked = plain.replace("m.content +", "'' }}{% generation %}{{ m.content }}{% endgeneration %}{{")
    target = make_chat_target("plain", "marked", template=marked, tokenizer=sentencepiece_tokenizer())
    rendered = render_conversation(target, conversation("a", " no"), turns="last")
    assert [target.tokenizer.text_of(rendered.token_ids[begin:end]) for begin, end in rendered.answers] == [": no"]


def test_reasoning_is_kept_where_the_template_keeps_it(family_targets: dict[str, TargetFiles]) -> None:
    target = family_targets["thinking"]
    messages = conversation("why", "because")
    messages[-1]["reasoning_content"] = "hm"
    assert spans(target, render_conversation(target, messages)) == ["<think>\nhm\n</think>\n\nbecause<|im_end|>"]


def test_a_template_that_drops_reasoning_is_refused_with_the_turn(family_targets: dict[str, TargetFiles]) -> None:
    target = family_targets["thinking"]
    messages = conversation("why", "because", "really", "yes")
    for turn in (1, 3):
        messages[turn]["reasoning_content"] = "hm"
    with pytest.raises(RenderingError, match=r"turn 2 of 4 \(assistant\).*The template edits history"):
        render_conversation(target, messages)
    # turn by turn it can be trained on
    assert spans(target, render_conversation(target, messages, turns="last")) == ["<think>\nhm\n</think>\n\nyes<|im_end|>"]


def test_a_generation_prompt_that_is_not_in_the_history_is_refused(make_chat_target: Callable[..., TargetFiles]) -> None:
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% endif %}"
    )
    target = make_chat_target("chatml", template=template)
    with pytest.raises(RenderingError, match=r"turn 2 of 2 \(assistant\): the prompt that asks for it"):
        render_conversation(target, conversation("a", "b"))


def test_masks_of_everything_and_of_nothing_are_refused(make_chat_target: Callable[..., TargetFiles]) -> None:
    bare = make_chat_target(
        "chatml", "bare", template="{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(RenderingError, match="covers every token"):
        render_conversation(bare, conversation("a", "b"))
    silent = make_chat_target(
        "chatml", "silent", template="{% for m in messages %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(RenderingError, match="covers nothing"):
        render_conversation(silent, conversation("a", "b"))


def test_conversations_without_an_answer_and_refusing_templates(family_targets: dict[str, TargetFiles]) -> None:
    with pytest.raises(RenderingError, match="does not end with an assistant turn"):
        render_conversation(family_targets["chatml"], conversation("a", "b", "c"))
    with pytest.raises(RenderingError, match="does not end with an assistant turn"):
        render_conversation(family_targets["chatml"], [])
    with pytest.raises(UsageError, match="must alternate"):
        render_conversation(family_targets["instruct"], conversation("a", "b", system="no such role"))


def test_text_of_messages_cannot_forge_generation_marks(make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target("marked")
    hostile = "{% generation %}x{% endgeneration %} \ue000 _border"
    rendered = render_conversation(target, conversation(hostile, "yes"))
    assert spans(target, rendered) == ["yes<|im_end|>"]


def test_folders_that_nothing_can_be_rendered_with(make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target()
    (target.folder / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match="no chat template"):
        TargetFiles.from_folder(target.folder)
    other = make_chat_target(name="other")
    config = (other.folder / "config.json").read_text().replace('"vocab_size": ', '"vocab_size": 1, "was": ')
    (other.folder / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match="not the tokenizer of this model"):
        TargetFiles.from_folder(other.folder)


def test_the_identity_changes_with_template_and_settings(make_chat_target: Callable[..., TargetFiles]) -> None:
    first, other = make_chat_target("chatml", "first"), make_chat_target("marked", "other")
    assert first.identity.tokenizer_sha256 == other.identity.tokenizer_sha256
    assert first.identity.template_sha256 != other.identity.template_sha256
    told = TargetFiles.from_folder(first.folder, {"enable_thinking": False})
    assert told.identity.template_sha256 != first.identity.template_sha256
