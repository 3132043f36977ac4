"""Chat templates: the Jinja program a model folder carries, rendered in a sandbox.

The rendering environment (block trimming, loop controls, the `tojson` filter, `raise_exception`, `strftime_now`) is what templates
on the Hugging Face hub are written against.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from breakeven.errors import CheckpointError, UsageError

__all__ = ["ChatTemplate"]


class ChatTemplate:
    """`source` is untrusted: it runs in Jinja's immutable sandbox and sees nothing but messages and special tokens."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], where: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"{where}: the chat template is not valid Jinja (line {error.lineno}: {error.message})"
            ) from error

    @classmethod
    def from_folder(
        cls, folder: Path, tokenizer_config: Mapping[str, Any], special_tokens: Mapping[str, str]
    ) -> ChatTemplate | None:
        """The template of `chat_template.jinja`, or else of `tokenizer_config.json`; None where the model has none.

        Raises:
            CheckpointError: there is one and it cannot be read.
        """
        file = folder / "chat_template.jinja"
        if file.is_file():
            return cls(file.read_text(encoding="utf-8"), special_tokens, str(file))
        source = tokenizer_config.get("chat_template")
        if isinstance(source, list):  # several named templates: "default" is the one for plain chat
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        if source is None:
            return None
        return cls(str(source), special_tokens, str(folder / "tokenizer_config.json"))

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt that asks for the assistant's next message.

        Raises:
            UsageError: the template refuses these messages (roles out of order, say).
        """
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens)
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise UsageError(f"the model's chat template refuses these messages: {error}") from error


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, which would change the prompt
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
