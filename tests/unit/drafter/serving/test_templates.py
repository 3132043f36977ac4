from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from breakeven.drafter.serving import sandbox
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


BOMBS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "empty loops": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "filters": "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "times": "{{ 'a' * 10 ** 10 }}",
    "powers": "{{ messages | length ** 10 ** 9 }}{{ (10 + messages | length) ** 10 ** 9 }}",
    "products": "{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "tildes": "{% set x = messages[0].content %}" + "{% set x = x ~ x %}" * 40,
    "sums of lists": "{% set x = messages %}" + "{% set x = x + x %}" * 40,
    "output": "{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}",
    "a list of one text": "{% set x = 'a' * 1000000 %}{{ [" + "x," * 3000 + "] }}",
    "json of one text": "{% set x = 'a' * 1000000 %}{{ [" + "x," * 3000 + "] | tojson }}",
    "replace": "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}",
    "replace filter": "{% set x = 'a' * 100000 %}{{ x | replace('a', x) }}",
    "join": "{{ range(99999) | join('a' * 1000000) }}",
    "map": "{{ range(99999) | map('center', 1000000) | list | length }}",
    "width": "{{ messages[0].content.ljust(10 ** 10) }}",
    "width of a filter": "{{ messages[0].content | indent(10 ** 10) }}",
    "width in a format": "{{ '{:>9999999999}'.format(messages | length) }}",
    "width in an old format": "{{ '%9999999999d' % messages | length }}",
    "width beside a format": "{{ '%*d' % (999999999, messages | length) }}",
    "formats": "{{ ('{0}' * 10000).format('a' * 1000000) }}",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_a_template_ends_within_bounded_time_and_memory(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "RENDER_S", 0.3)
    tracemalloc.start()
    began_s = time.process_time()
    try:
        with pytest.raises(UsageError, match="refuses these messages"):
            render(source)
        assert tracemalloc.get_traced_memory()[1] < 400_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - began_s < 20.0


@pytest.mark.parametrize(
    "source",
    ["{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}", "{% for i in [1] %}" * 30 + "{% endfor %}" * 30, "{% if 1 %}" * 3000],
)
def test_a_template_nested_without_end_is_one_message(source: str) -> None:
    with pytest.raises(CheckpointError, match="test: the chat template"):
        render(source)


def test_what_chats_do_is_within_the_bounds() -> None:
    messages = [{"role": "user", "content": f"<think>{'reason ' * 30_000}</think>answer {number}"} for number in range(20)]
    source = (
        "{% macro turn(m) %}{{ '<' ~ m.role + '>' }}{{ m.content.split('</think>')[-1].replace('answer', '%s:' % 'said') }}"
        "{{ m.content.replace(m.content, '{:>5}'.format('x')) | indent(2) }}{{ 'ab' * 2 }}{{ 2 ** 10 }}{% endmacro %}"
        "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + [m.role] %}{{ turn(m) }}{% endfor %}"
        "{{ ns.all[:3] | join(', ') }}"
        "{{ messages | map(attribute='role') | list | length }}{{ [1, {'a': none}] | tojson(indent=4) }}"
    )
    text = ChatTemplate(source, {}, "test").render(messages)
    assert text.startswith("<user>said: 0    xabab1024<user>said: 1")
    assert text.endswith('user, user, user20[\n    1,\n    {\n        "a": null\n    }\n]')


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
