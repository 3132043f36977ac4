"""Prompts for training data, one JSON object a line; what tells them apart, and on which side of the split they stand.

    {"id": "1f0c...", "kind": "code", "topic": "a stack", "source": "combination", "split": "train",
     "messages": [{"role": "user", "content": "..."}]}

The id is the hash of the normalised messages: it cannot be lost, and two spellings of one prompt have one id. A held-out prompt is
held out for good: answers carry the split along, and readers of training data never hand out the other side.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from breakeven.errors import DataError
from breakeven.whole import whole_file

__all__ = [
    "MAX_LINE_BYTES",
    "PromptRecord",
    "Split",
    "lines_of",
    "normalised",
    "prompt_id",
    "read_prompt_records",
    "write_prompt_records",
]

Split = Literal["train", "held_out"]
SPLITS = ("train", "held_out")
ROLES = ("system", "user", "assistant", "tool")

# A million tokens of ids take seven bytes each; a line beyond is a mistake, and must not be read into memory whole.
MAX_LINE_BYTES = 16_000_000
_FAULTS_SHOWN = 5
_NOT_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRecord:
    """`topic` is None where nobody knows it; `source` says how the prompt was made: sampled, combination or file."""

    id: str
    kind: str
    messages: tuple[Mapping[str, Any], ...]
    split: Split
    source: str
    topic: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "topic": self.topic,
            "source": self.source,
            "split": self.split,
            "messages": list(self.messages),
        }


def normalised(text: str) -> str:
    """Words in lower case with single spaces: what stays the same when a prompt is spelled or punctuated differently."""
    return _NOT_WORDS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def prompt_id(messages: Sequence[Mapping[str, Any]]) -> str:
    """Sixteen hex digits over the roles and the normalised contents.

    Contents without a word (only signs) are taken as they are, or all of them would be one prompt.
    """
    parts = []
    for message in messages:
        content = str(message.get("content") or "")
        parts.append([message["role"], normalised(content) or content])
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that hold something, with their numbers from 1.

    Raises:
        DataError: the file cannot be read, or a line is too long to be one of ours.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
                if len(line) > MAX_LINE_BYTES:
                    raise DataError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected JSON Lines, one record a line"
                    )
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected a file of JSON Lines") from error


def write_prompt_records(path: Path, records: Iterable[PromptRecord]) -> None:
    """Whole or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        with whole_file(path, replaces=True) as file:
            for record in records:
                file.write(orjson.dumps(record.as_json()) + b"\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); nothing of it was kept") from error


def read_prompt_records(path: Path) -> tuple[PromptRecord, ...]:
    """What `breakeven data prompts` wrote.

    Raises:
        DataError: unreadable, empty, or broken lines (the first few are named).
    """
    records: dict[str, PromptRecord] = {}
    faults: list[str] = []
    num_faults = 0
    for number, line in lines_of(path):
        try:
            record = _record(line)
            if (twin := records.setdefault(record.id, record)) is not record:
                raise ValueError(f"the same prompt as an earlier line ({twin.id})")
        except (ValueError, RecursionError) as error:
            num_faults += 1
            if len(faults) < _FAULTS_SHOWN:
                faults.append(f"{path}, line {number}: {error}")
    if faults:
        more = [f"and {num_faults - len(faults)} more broken lines"] if num_faults > len(faults) else []
        advice = f"To use a file of your own: breakeven data prompts --from {path} --out prompts.jsonl"
        raise DataError("\n".join([*faults, *more, advice]))
    if not records:
        raise DataError(f"{path}: no prompts in it; expected what breakeven data prompts writes")
    return tuple(records.values())


def _record(line: bytes) -> PromptRecord:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    split, topic = value.get("split"), value.get("topic")
    if split not in SPLITS:
        raise ValueError(f'"split" is {_shown(split)}; expected "train" or "held_out"')
    messages = checked_messages(value.get("messages"))
    if messages[-1]["role"] == "assistant":
        raise ValueError("the last message is the assistant's; expected a user turn for the target to answer")
    found = prompt_id(messages)
    if value.get("id") != found:
        raise ValueError(
            f'"id" is {_shown(value.get("id"))}, the messages hash to {found}: the line was edited and its split cannot be trusted'
        )
    kind, source = value.get("kind"), value.get("source")
    return PromptRecord(
        id=found,
        kind=kind if isinstance(kind, str) and kind else "custom",
        messages=messages,
        split=split,
        source=source if isinstance(source, str) else "file",
        topic=topic if isinstance(topic, str) else None,
    )


def checked_messages(value: object) -> tuple[dict[str, Any], ...]:
    """Chat messages from a file.

    Raises:
        ValueError: no list of objects with a known role and text.
    """
    if not isinstance(value, list) or not value:
        raise ValueError(f'"messages" is {_shown(value)}; expected a list of objects with "role" and "content"')
    for place, message in enumerate(value, start=1):
        if not isinstance(message, dict):
            raise ValueError(f"message {place} is {_shown(message)}; expected an object")
        if message.get("role") not in ROLES:
            raise ValueError(f'message {place} has "role" {_shown(message.get("role"))}; expected one of {", ".join(ROLES)}')
        if not isinstance(message.get("content"), str):
            raise ValueError(f'message {place} has "content" {_shown(message.get("content"))}; expected text')
    return tuple(value)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
