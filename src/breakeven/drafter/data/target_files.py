"""What training data needs of a target's folder: tokenizer, chat template, stop tokens and limits. No weight is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from breakeven.checkpoints.folder import fingerprint, open_folder
from breakeven.drafter.serving.loading import GenerationDefaults
from breakeven.drafter.serving.templates import ChatTemplate
from breakeven.drafter.serving.tokenizer import TextTokenizer
from breakeven.errors import CheckpointError, UsageError

__all__ = ["TargetFiles", "TargetIdentity"]

# A model whose configuration names no limit: training never reaches this, and a sample that does is refused by its trainer.
UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetIdentity:
    """By what training data are held to the target they were made with. `fingerprint` is that of `checkpoints.folder`."""

    name: str
    fingerprint: str
    tokenizer_sha256: str
    template_sha256: str
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """`template_variables` is what else the chat template looks at, `enable_thinking` for example, and part of the identity."""

    folder: Path
    identity: TargetIdentity
    tokenizer: TextTokenizer
    template: ChatTemplate
    stop_token_ids: frozenset[int]
    context_length: int
    template_variables: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_folder(cls, folder: Path, template_variables: Mapping[str, Any] | None = None) -> TargetFiles:
        """Read everything but the weights.

        Raises:
            CheckpointError: a file is missing or damaged, or the tokenizer is not this model's.
            UsageError: the model has no chat template.
        """
        opened = open_folder(folder)
        tokenizer = TextTokenizer.from_folder(folder)
        if tokenizer.chat_template is None:
            raise UsageError(
                f"{folder}: no chat template in chat_template.jinja or tokenizer_config.json; a drafter is trained on rendered "
                "chats, so put the template that the model is served with there"
            )
        text_config = opened.config.get("text_config")
        config = {**opened.config, **(text_config if isinstance(text_config, dict) else {})}
        vocab_size = _count(config.get("vocab_size"), folder, "vocab_size")
        if tokenizer.vocab_size > vocab_size:
            raise CheckpointError(
                f"{folder}: tokenizer.json has {tokenizer.vocab_size} tokens and config.json a vocab_size of {vocab_size}: "
                "this is not the tokenizer of this model; fetch both from one place"
            )
        limit = config.get("max_position_embeddings")
        variables = dict(template_variables or {})
        identity = TargetIdentity(
            name=folder.resolve().name,
            fingerprint=fingerprint(opened),
            tokenizer_sha256=_sha256((folder / "tokenizer.json").read_bytes()),
            template_sha256=_sha256(
                orjson.dumps([tokenizer.chat_template.source, variables], option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
            ),
            vocab_size=vocab_size,
        )
        return cls(
            folder=folder,
            identity=identity,
            tokenizer=tokenizer,
            template=tokenizer.chat_template,
            stop_token_ids=_stop_token_ids(folder, config, tokenizer),
            context_length=_count(limit, folder, "max_position_embeddings") if limit is not None else UNLIMITED,
            template_variables=variables,
        )

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """Ids of the prompt that asks for the next assistant message, as a server of this model makes them.

        Raises:
            UsageError: the template refuses the messages.
        """
        return self.encode(self.template.render(messages, variables=self.template_variables))

    def encode(self, rendered: str) -> tuple[int, ...]:
        """Ids of text that the template made: it carries its special tokens itself."""
        return self.tokenizer.encode(rendered, add_special_tokens=False)


def _stop_token_ids(folder: Path, config: Mapping[str, Any], tokenizer: TextTokenizer) -> frozenset[int]:
    """Whatever ends an answer when the model is served: config.json, generation_config.json and the tokenizer each name some.

    Raises:
        CheckpointError: none is named, or one lies outside the vocabulary.
    """
    named = config.get("eos_token_id")
    ids = {*(named if isinstance(named, list) else [] if named is None else [named])}
    ids |= GenerationDefaults.from_folder(folder).eos_token_ids
    if tokenizer.end_token_id is not None:
        ids.add(tokenizer.end_token_id)
    wrong = [token for token in ids if type(token) is not int or not 0 <= token < tokenizer.vocab_size]
    if wrong or not ids:
        found = f"end-of-sequence token {wrong[0]!r}" if wrong else "no end-of-sequence token"
        raise CheckpointError(
            f"{folder}: {found} in config.json, generation_config.json or tokenizer_config.json; expected ids below "
            f"{tokenizer.vocab_size}, or nobody knows where an answer ends"
        )
    return frozenset(ids)


def _count(value: object, folder: Path, key: str) -> int:
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{folder / 'config.json'}: {key} is {value!r}; expected a whole number above 0")
    return value


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
