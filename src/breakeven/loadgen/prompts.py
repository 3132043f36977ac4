"""Prompts: 80 of our own in eight kinds, or the user's file; and the order in which they are sent.

A prompts file is JSON Lines, one prompt a line, in any mixture of::

    "a question as a JSON string"
    {"prompt": "a question"}
    {"messages": [{"role": "system", "content": "..."}, {"role": "user", "content": "..."}]}
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}      (ShareGPT)

Objects may carry "id" and "kind" (reports group by kind); other keys are ignored. Turns after the last user turn are dropped: they
are the answers that the server is about to write. Duplicates are kept, since they are what production traffic looks like.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

from breakeven.errors import PromptsError
from breakeven.loadgen.samples import Prompt

__all__ = ["KINDS", "MAX_LINE_BYTES", "builtin_prompts", "prompt_sequence", "read_prompts"]

KINDS = ("chat", "reasoning", "maths", "code", "extraction", "summary", "rewriting", "roleplay")

# A million bytes is about 250 000 tokens, beyond the context of what people serve: such a line is a mistake, not a prompt.
MAX_LINE_BYTES = 1_000_000

_FAULTS_SHOWN = 5
_ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant"}
_EXPECTED = 'a JSON string, {"prompt": ...}, {"messages": [...]} or {"conversations": [...]}'


class _Fault(Exception):
    """What was found on one line."""


def builtin_prompts(kinds: Collection[str] | None = None) -> tuple[Prompt, ...]:
    """Breakeven's own prompts, all or of some `kinds`, in the order of their ids.

    Raises:
        PromptsError: a kind that there is not.
    """
    if unknown := sorted(set(kinds or ()) - set(KINDS)):
        raise PromptsError(f"unknown kind of prompt: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    lines = (resources.files("breakeven.loadgen") / "data" / "prompts.jsonl").read_bytes().splitlines()
    prompts = (_prompt(line, number) for number, line in enumerate(lines, start=1))
    return tuple(prompt for prompt in prompts if kinds is None or prompt.kind in kinds)


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a JSON Lines file, in file order.

    Raises:
        PromptsError: the file cannot be read, holds no prompts, or has broken lines (named with what was found on them).
    """
    prompts: list[Prompt] = []
    faults: list[str] = []
    num_faults = 0
    try:
        with path.open("rb") as file:
            # readline with a limit: a file without line ends must not be read into memory whole
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
                if len(line) > MAX_LINE_BYTES:
                    raise PromptsError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected JSON Lines, one prompt a line"
                    )
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                if not prompts and not faults and text.lstrip().startswith(b"["):
                    raise PromptsError(
                        f"{path}, line {number}: a JSON array; expected JSON Lines, one prompt a line. "
                        f"To convert: jq -c '.[]' {path.name} > {path.stem}.jsonl"
                    )
                try:
                    prompts.append(_prompt(text, number))
                except _Fault as fault:
                    num_faults += 1
                    if len(faults) < _FAULTS_SHOWN:
                        faults.append(f"  line {number}: {fault}")
    except OSError as error:
        raise PromptsError(f"{path}: cannot be read ({error.strerror or error}); expected a JSON Lines file of prompts") from error
    if faults:
        more = f"\n  and {num_faults - len(faults)} more" if num_faults > len(faults) else ""
        lines = "1 broken line" if num_faults == 1 else f"{num_faults} broken lines"
        raise PromptsError(f"{path}: {lines}; each should be {_EXPECTED}\n" + "\n".join(faults) + more)
    if not prompts:
        raise PromptsError(f"{path}: no prompts in it; expected one a line: {_EXPECTED}")
    return tuple(prompts)


def prompt_sequence(prompts: Sequence[Prompt], seed: int) -> Iterator[Prompt]:
    """Endless: every prompt once a pass, each pass in a fresh order. The same prompts and seed give the same sequence everywhere.

    Raises:
        PromptsError: there are no prompts.
    """
    if not prompts:
        raise PromptsError("no prompts to send; expected at least one")
    return _passes(prompts, random.Random(seed))


def _passes(prompts: Sequence[Prompt], rng: random.Random) -> Iterator[Prompt]:
    while True:
        yield from rng.sample(prompts, len(prompts))


def _prompt(line: bytes, number: int) -> Prompt:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Fault(f"byte 0x{line[error.start]:02x} at place {error.start + 1} is not UTF-8") from error
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _Fault(f"not JSON ({error.msg}): {_excerpt(line)}") from error
    if isinstance(value, str):
        value = {"prompt": value}
    if not isinstance(value, dict):
        raise _Fault(f"a JSON {_json_type(value)}: {_excerpt(line)}")
    kind, ident = value.get("kind"), value.get("id")
    return Prompt(
        id=str(ident) if isinstance(ident, (str, int)) else f"line {number}",
        kind=kind if isinstance(kind, str) and kind else "custom",
        messages=_messages(value, line),
    )


def _messages(value: Mapping[str, Any], line: bytes) -> tuple[tuple[str, str], ...]:
    if "messages" in value:
        turns = _turns(value["messages"], "messages", "role", "content")
    elif "conversations" in value:
        turns = _turns(value["conversations"], "conversations", "from", "value")
    elif "prompt" in value:
        turns = [("user", _text(value["prompt"], '"prompt"'))]
    else:
        raise _Fault(f"no prompt, messages or conversations in {_excerpt(line)}")
    while turns and turns[-1][0] != "user":
        turns.pop()
    if not turns:
        raise _Fault("no user turn in it")
    return tuple(turns)


def _turns(value: object, name: str, role_key: str, text_key: str) -> list[tuple[str, str]]:
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        raise _Fault(f'"{name}" should be a list of objects with "{role_key}" and "{text_key}"')
    turns = []
    for place, turn in enumerate(value, start=1):
        role = turn.get(role_key)
        if not isinstance(role, str) or role not in _ROLES:
            raise _Fault(
                f'turn {place} of "{name}" has "{role_key}" {_excerpt(orjson.dumps(role))}; expected one of {", ".join(_ROLES)}'
            )
        turns.append((_ROLES[role], _text(turn.get(text_key), f'turn {place} of "{name}"')))
    return turns


def _text(value: object, where: str) -> str:
    """A string, or OpenAI's list of text parts."""
    if isinstance(value, list) and value and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in value):
        value = "\n".join(part["text"] for part in value)
    if not isinstance(value, str):
        raise _Fault(f"{where} is a JSON {_json_type(value)}; expected text")
    if not value.strip():
        raise _Fault(f"{where} is empty")
    return value


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _excerpt(line: bytes) -> str:
    """The start of a line as it can be shown in a terminal: the file is the user's, its content may be anybody's."""
    text = line[:240].decode("utf-8", "replace").strip()
    safe = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return safe if len(safe) <= 60 else safe[:57] + "..."
