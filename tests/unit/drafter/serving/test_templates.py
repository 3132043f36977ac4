from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.drafter.serving.templates import ChatTemplate
from breakeven.errors import CheckpointError, UsageError

HELLO = [{"role": "user", "content": "<hi> & 'ho'"}]


def render(source: str) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}, "test").render(HELLO)


def test_blocks_are_trimmed_and_nothing_is_escaped() -> None:
    source = "{{ bos_token }}\n  {% for message in messages %}\n{{ message['content'] }}\n  {% endfor %}\n"
    assert render(source) == "<s>\n<hi> & 'ho'\n"


def test_tojson_does_not_escape_for_html() -> None:
    assert render("{{ messages[0].content | tojson }}") == "\"<hi> & 'ho'\""


def test_loop_controls_and_dates() -> None:
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("{{ strftime_now('%Y') }}").startswith("20")


ASKED = [{"role": "user", "content": "hello"}]


def test_marked_parts_change_nothing_and_can_be_found() -> None:
    source = (
        "{% for m in messages %}<{% generation %}{{ m.content }}{% endgeneration %}>{% endfor %}"
        "{% if add_generation_prompt %}!{% endif %}"
    )
    template = ChatTemplate(source, {}, "test")
    two = [*ASKED, {"role": "assistant", "content": "bye"}]
    assert template.render(two) == "<hello><bye>!"
    text, spans = template.render_marked(two)
    assert text == "<hello><bye>"
    assert [text[begin:end] for begin, end in spans] == ["hello", "bye"]
    assert ChatTemplate("{{ messages[0].content }}", {}, "test").render_marked(ASKED) == ("hello", ())


def test_variables_reach_the_template_and_cannot_replace_messages() -> None:
    template = ChatTemplate("{{ messages[0].content }}{% if think %} think{% endif %}{{ bos_token }}", {"bos_token": "<s>"}, "test")
    assert template.render(ASKED) == "hello<s>"
    assert template.render(ASKED, variables={"think": True, "messages": [], "bos_token": "x"}) == "hello think<s>"
    assert template.render(ASKED, add_generation_prompt=False) == "hello<s>"


def test_endless_recursion_is_a_refusal() -> None:
    with pytest.raises(UsageError, match="refuses"):
        render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")


def test_a_template_can_refuse_messages() -> None:
    with pytest.raises(UsageError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source", ["{{ messages.__class__.__mro__ }}", "{{ ''.__class__.__base__.__subclasses__() }}", "{{ messages.append(1) }}"]
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(UsageError, match="refuses"):
        render(source)


def test_invalid_template_names_the_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("line\n{% for %}")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: .*line 2"):
        ChatTemplate.from_folder(tmp_path, {}, {})


def test_file_wins_over_config_and_default_over_other_names(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    template = ChatTemplate.from_folder(tmp_path, {"chat_template": named}, {})
    assert template is not None
    assert template.render(HELLO) == "plain"
    (tmp_path / "chat_template.jinja").write_text("file")
    template = ChatTemplate.from_folder(tmp_path, {"chat_template": named}, {})
    assert template is not None
    assert template.render(HELLO) == "file"
    assert ChatTemplate.from_folder(tmp_path / "elsewhere", {}, {}) is None
