"""The lines of a training file (docs/training-data.md): a header that names the target, then one answer a line.

    {"breakeven": "training data", "schema_version": 1, "target": {...}, "settings": {...}}
    {"id": "1f0c...-0", "prompt_id": "1f0c...", "kind": "code", "topic": null, "split": "train", "messages": [...],
     "tokens": "exact", "token_ids": [...], "num_prompt_tokens": 31, "sampling": {"temperature": 0.7, "top_p": 0.95},
     "finish_reason": "stop", "looping": null}
    {"id": "77ab...-0", "skipped": "HTTP 400: the prompt is longer than the context"}

`tokens` says where the ids come from: "exact" ones are those that the target read and wrote, "rendered" ones were made from the
text afterwards and may be split differently, and "none" are absent and made by the reader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from breakeven.drafter.data.prompt_records import Split
from breakeven.drafter.data.target_files import TargetIdentity
from breakeven.errors import DataError

__all__ = ["SCHEMA_VERSION", "AnswerRecord", "Header", "Sampling", "refuse_to_replace", "skipped_line"]

SCHEMA_VERSION = 1
KIND_OF_FILE = "training data"
MAX_HEADER_BYTES = 100_000

TokenSource = Literal["exact", "rendered", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an answer was drawn; temperature 0 is greedy."""

    temperature: float
    top_p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """`target` is None where no folder was at hand. `settings` are what makes two runs of `data answers` the same."""

    target: TargetIdentity | None
    settings: Mapping[str, Any]

    def line(self) -> bytes:
        found = {"breakeven": KIND_OF_FILE, "schema_version": SCHEMA_VERSION}
        return orjson.dumps({**found, "target": asdict(self.target) if self.target else None, "settings": self.settings}) + b"\n"

    @classmethod
    def from_line(cls, line: bytes, where: str) -> Header:
        """Read the first line of a file.

        Raises:
            DataError: it is no header, or one of another schema.
        """
        try:
            found = orjson.loads(line)
            if found["breakeven"] != KIND_OF_FILE:
                raise ValueError(f'"breakeven" is {found["breakeven"]!r}')
            version = found["schema_version"]
        except (ValueError, TypeError, LookupError) as error:
            raise DataError(
                f"{where}: not the header of training data ({error}); expected a file that breakeven data answers wrote"
            ) from error
        if version != SCHEMA_VERSION:
            newer = type(version) is int and version > SCHEMA_VERSION
            advice = "update breakeven" if newer else "make it again with breakeven data answers"
            raise DataError(f"{where}: training data of schema {version!r}, this version reads {SCHEMA_VERSION}; {advice}")
        try:
            target = TargetIdentity(**found["target"]) if found["target"] is not None else None
            settings = dict(found["settings"])
            if target is not None and not all(
                type(value) is (int if name == "vocab_size" else str) for name, value in asdict(target).items()
            ):
                raise ValueError("a field of the target has the wrong type")
        except (ValueError, TypeError, LookupError) as error:
            raise DataError(f"{where}: damaged header ({error}); make the file again with breakeven data answers") from error
        return cls(target=target, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """`messages` end with the assistant's answer. `token_ids` are prompt and answer, up to the last token the target wrote.

    `earlier_answers` are the spans of tokens before the last answer that the target wrote too: earlier turns of its own.
    """

    id: str
    prompt_id: str
    kind: str
    topic: str | None
    split: Split
    messages: tuple[Mapping[str, Any], ...]
    tokens: TokenSource
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    sampling: Sampling | None
    finish_reason: str
    looping: str | None
    earlier_answers: tuple[tuple[int, int], ...] = ()

    def line(self) -> bytes:
        found = {name: getattr(self, name) for name in self.__slots__ if name not in ("sampling", "earlier_answers")}
        found["sampling"] = asdict(self.sampling) if self.sampling is not None else None
        if self.earlier_answers:
            found["earlier_answers"] = self.earlier_answers
        return orjson.dumps(found) + b"\n"


def refuse_to_replace(path: Path) -> None:
    """Answers cost hours: what replaces whole files keeps off them. So does what makes them: where nothing can be written is found
    out before.

    Raises:
        DataError: `path` holds answers that were asked for, is a folder, or lies in none that can be written to.
    """
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "it is a folder" if path.is_dir() else f"there is no folder {folder} that can be written to"
        raise DataError(f"{path}: cannot be written: {why}; name a file for --out in a folder that is there")
    try:
        with path.open("rb") as file:
            line = file.readline(MAX_HEADER_BYTES)
    except OSError:
        return  # nothing there, or nothing that can be read: whoever writes says so
    if not line.startswith(b'{"breakeven":"' + KIND_OF_FILE.encode()):
        return
    if "imported" not in Header.from_line(line, str(path)).settings:
        raise DataError(
            f"{path}: holds answers of the target, which this would replace; choose another --out, or remove it yourself"
        )


def skipped_line(answer_id: str, reason: str) -> bytes:
    """An answer that will not come, so that a later run does not ask again."""
    return orjson.dumps({"id": answer_id, "skipped": reason}) + b"\n"
