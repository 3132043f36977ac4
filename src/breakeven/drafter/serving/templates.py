"""Chat templates: the Jinja program a model folder carries, rendered in a sandbox.

The rendering environment (block trimming, loop controls, the `tojson` filter, `raise_exception`, `strftime_now`) is what templates
on the Hugging Face hub are written against. Some templates mark what the assistant writes with `{% generation %}`: rendered text is
the same with and without it, and `render_marked` says where the marked parts lie.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from breakeven.checkpoints.folder import own_file
from breakeven.drafter.serving.sandbox import BoundedSandbox
from breakeven.errors import CheckpointError, UsageError
from breakeven.inputs.text import read_text

__all__ = ["ChatTemplate"]

MAX_BYTES = 1_000_000


class ChatTemplate:
    """`source` is untrusted: it runs in Jinja's immutable sandbox and sees nothing but messages and special tokens."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], where: str) -> None:
        environment = BoundedSandbox([loopcontrols, _Generation], filters={"tojson": _to_json})
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.source = source
        self._special_tokens = dict(special_tokens)
        # what marks the borders of generated parts: no message can hold it, since nobody knows it
        self._border = f"\ue000{secrets.token_hex(16)}\ue001"
        environment.extend(generation_border=self._border)
        self._environment = environment
        try:
            environment.begin()
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"{where}: the chat template is not valid Jinja (line {error.lineno}: {error.message})"
            ) from error
        # Python's own compiler, to which Jinja hands it, has limits on nesting
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
            raise CheckpointError(f"{where}: the chat template cannot be compiled ({str(error) or 'nested too deeply'})") from error

    @classmethod
    def from_folder(
        cls, folder: Path, tokenizer_config: Mapping[str, Any], special_tokens: Mapping[str, str]
    ) -> ChatTemplate | None:
        """The template of `chat_template.jinja`, or else of `tokenizer_config.json`; None where the model has none.

        Raises:
            CheckpointError: there is one and it cannot be read.
        """
        file = own_file(folder, "chat_template.jinja", max_bytes=MAX_BYTES)
        if file is not None:
            text = read_text(file, max_bytes=MAX_BYTES, expected="a chat template", error=CheckpointError)
            return cls(text, special_tokens, str(file))
        source = tokenizer_config.get("chat_template")
        if isinstance(source, list):  # several named templates: "default" is the one for plain chat
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        if source is None:
            return None
        return cls(str(source), special_tokens, str(folder / "tokenizer_config.json"))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt that asks for the assistant's next message; without `add_generation_prompt`, the messages alone.

        variables: what else the template may look at (`enable_thinking`, say).

        Raises:
            UsageError: the template refuses these messages (roles out of order, say).
        """
        return self._rendered(messages, add_generation_prompt, variables or {}).replace(self._border, "")

    def render_marked(
        self, messages: Sequence[Mapping[str, Any]], *, variables: Mapping[str, Any] | None = None
    ) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The messages alone, and the spans of characters that stand inside `{% generation %}`; none where the template has none.

        Raises:
            UsageError: the template refuses these messages.
        """
        pieces = self._rendered(messages, False, variables or {}).split(self._border)
        ends = list(itertools.accumulate(map(len, pieces)))
        # borders come in pairs, so every second piece lies inside
        return "".join(pieces), tuple(zip(ends[0::2], ends[1::2], strict=False))

    def _rendered(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, variables: Mapping[str, Any]) -> str:
        known = {**variables, **self._special_tokens, "messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            self._environment.begin()
            return self._template.render(known)
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            RecursionError,
            MemoryError,
            AttributeError,
        ) as error:
            raise UsageError(f"the model's chat template refuses these messages: {error}") from error


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}`: its content, between two border marks."""

    tags = {"generation"}  # noqa: RUF012 - how Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        border = nodes.Output([nodes.Const(vars(self.environment)["generation_border"])])
        return nodes.Scope([border, *body, border]).set_lineno(line)


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, which would change the prompt
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
