"""The tokenizer of a model folder: text to ids, chat to ids, and ids to the bytes they stand for.

`tokenizers` and Jinja are used directly: importing and loading `transformers.AutoTokenizer` takes three seconds, this 0.15.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from breakeven.checkpoints.folder import own_file
from breakeven.checkpoints.headers import MAX_JSON_BYTES, read_json
from breakeven.drafter.serving.templates import ChatTemplate
from breakeven.errors import CheckpointError, UsageError

__all__ = ["TextTokenizer"]

# the largest public ones have 35 MB
MAX_TOKENIZER_BYTES = 200_000_000
SPECIAL_TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "pad_token")


class TextTokenizer:
    """Not safe for several threads at once: `token_bytes` fills its table as it goes."""

    def __init__(self, tokenizer: Tokenizer, chat_template: ChatTemplate | None, end_token: str | None = None) -> None:
        self._tokenizer = tokenizer
        self.chat_template = chat_template
        # None where the folder's tokenizer names no end-of-sequence token
        self.end_token_id: int | None = tokenizer.token_to_id(end_token) if end_token is not None else None
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        added = tokenizer.get_added_tokens_decoder()
        self._added = {token_id: b"" if token.special else token.content.encode() for token_id, token in added.items()}
        self.is_byte_level = _is_byte_level(tokenizer)
        self._bytes_of: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, folder: Path) -> TextTokenizer:
        """Read `tokenizer.json`, `tokenizer_config.json` and the chat template.

        Raises:
            CheckpointError: a file is missing or damaged, or its decoder is not byte-level and not SentencePiece.
        """
        file = own_file(folder, "tokenizer.json", max_bytes=MAX_TOKENIZER_BYTES)
        if file is None:
            raise CheckpointError(
                f"{folder / 'tokenizer.json'}: missing; expected the fast tokenizer's file (save the tokenizer with transformers)"
            )
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{file}: not a tokenizer ({error}); fetch the model again") from error
        settings_file = own_file(folder, "tokenizer_config.json", max_bytes=MAX_JSON_BYTES)
        settings = read_json(settings_file) if settings_file is not None else {}
        special = {key: _content(settings[key]) for key in SPECIAL_TOKEN_KEYS if settings.get(key) is not None}
        return cls(tokenizer, ChatTemplate.from_folder(folder, settings, special), special.get("eos_token"))

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Ids of `text`; `add_special_tokens` puts the model's begin-of-text token in front, where it has one."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def encode_many(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids of each text as it is, on all cores."""
        return [tuple(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """Ids of the prompt that asks for the assistant's next message.

        Raises:
            UsageError: the model has no chat template, or its template refuses the messages.
        """
        if self.chat_template is None:
            raise UsageError("this model has no chat template: use /v1/completions with a prompt")
        return self.encode(self.chat_template.render(messages), add_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes `token_id` adds to the text: nothing for special tokens and ids beyond the vocabulary (padding rows)."""
        known = self._bytes_of.get(token_id)
        if known is None:
            known = self._bytes_of[token_id] = self._decode(token_id)
        return known

    def text_of(self, token_ids: Iterable[int]) -> str:
        """The text that `token_ids` add up to, special tokens left out; broken characters are shown as U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_name(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of a token, special ones included; None beyond the vocabulary."""
        return self._tokenizer.id_to_token(token_id)

    def token_id(self, name: str) -> int | None:
        """The id of a token by the vocabulary's own spelling."""
        return self._tokenizer.token_to_id(name)

    def encode_with_offsets(self, text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Ids of `text` as it is, and the span of characters that each came from."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoding.ids), tuple(encoding.offsets)

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Added tokens that are marked as special: they stand for no text."""
        return frozenset(token_id for token_id, content in self._added.items() if not content)

    def _decode(self, token_id: int) -> bytes:
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._added:
            return self._added[token_id]
        if self.is_byte_level:
            return bytes(BYTE_OF[character] for character in token) if all(c in BYTE_OF for c in token) else token.encode()
        return BYTE_FALLBACK.get(token) or token.replace("▁", " ").encode()


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable Latin-1 stands for itself, the other bytes for U+0100 and up (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


BYTE_OF = _byte_alphabet()
BYTE_FALLBACK = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    """Which of the two ways a Llama-architecture tokenizer spells bytes.

    Raises:
        CheckpointError: neither.
    """
    decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else {"type": None}
    names = [part["type"] for part in decoder.get("decoders", [decoder])]
    if "ByteLevel" in names:
        return True
    if "ByteFallback" in names or "Metaspace" in names:
        return False
    raise CheckpointError(f"tokenizer.json: decoder {names} is not known here; expected ByteLevel, or ByteFallback or Metaspace")


def _content(token: object) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)
