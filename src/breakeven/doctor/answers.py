"""How often each token stands in the user's answers, as JSON lines: token ids, or text through the target's tokenizer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from breakeven.doctor.evidence import Answers
from breakeven.errors import UsageError
from breakeven.loadgen.degenerate import degenerate_reason

__all__ = ["Encode", "read_answers"]

Encode = Callable[[str], Sequence[int]]
# Enough for a share of 0.1 % to be seen; the rest of a larger file is not read.
MAX_TOKENS = 2_000_000
MAX_LINE_BYTES = 4_000_000
ID_KEYS = ("output_ids", "token_ids", "completion_token_ids")
TEXT_KEYS = ("answer", "response", "output", "completion", "text", "content")
_MESSAGE_KEYS = ("messages", "conversations", "conversation")


def read_answers(path: Path, encode: Encode | None) -> Answers:
    """Count tokens of what the target wrote: assistant turns, answers or plain strings, one JSON value a line.

    Raises:
        UsageError: the file cannot be read, holds no answers, or holds text and there is no tokenizer to count its tokens.
    """
    counts: Counter[int] = Counter()
    num_lines = num_texts = num_prompts = 0
    odd_answers: list[str] = []
    odd_prompts: list[str] = []
    try:
        with path.open("rb") as file:
            while (line := file.readline(MAX_LINE_BYTES + 1)) and counts.total() < MAX_TOKENS:
                num_lines += 1
                if len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{path}:{num_lines}: longer than {MAX_LINE_BYTES} bytes; expected one answer a line (JSON)")
                if line.strip():
                    where = f"{path}:{num_lines}"
                    value = _parsed(line, where)
                    answers, prompts = list(_texts(value)), list(_prompts(value))
                    num_texts, num_prompts = num_texts + len(answers), num_prompts + len(prompts)
                    odd_answers += _odd(answers, num_lines)
                    odd_prompts += _odd(prompts, num_lines)
                    counts.update(_ids(value, where, encode))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); expected answers as JSON lines") from error
    if not counts:
        raise UsageError(
            f"{path}: no answers in {num_lines} lines; expected JSON lines with {', '.join(ID_KEYS + TEXT_KEYS)} or messages"
        )
    return Answers(
        source=path.name,
        counts=dict(counts),
        num_tokens=counts.total(),
        num_texts=num_texts,
        num_prompts=num_prompts,
        looping_answers=tuple(odd_answers),
        looping_prompts=tuple(odd_prompts),
    )


def _parsed(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON; expected one answer a line") from error


def _odd(texts: Sequence[str], line: int) -> Iterator[str]:
    reasons = (degenerate_reason(text) for text in texts)
    yield from (f"line {line}: {reason}" for reason in reasons if reason is not None)


def _ids(value: Any, where: str, encode: Encode | None) -> Iterator[int]:
    if isinstance(value, dict):
        for key in ID_KEYS:
            if isinstance(value.get(key), list):
                yield from _marked(value, value[key])
                return
    for text in _texts(value):
        if encode is None:
            raise UsageError(f"{where}: answers as text take the target's tokenizer to count; give --target DIR too")
        yield from encode(text)


def _marked(value: dict[str, Any], ids: list[Any]) -> Iterator[int]:
    """Where a loss mask says which tokens the target wrote, the prompt's are left out."""
    mask = value.get("loss_mask")
    keep = mask if isinstance(mask, list) and len(mask) == len(ids) else [True] * len(ids)
    yield from (one for one, kept in zip(ids, keep, strict=True) if kept and type(one) is int and 0 <= one < 1 << 31)


def _prompts(value: Any) -> Iterator[str]:
    """What the user wrote, where the file holds it."""
    if not isinstance(value, dict):
        return
    turns: list[Any] = next((value[key] for key in _MESSAGE_KEYS if isinstance(value.get(key), list)), [])
    for turn in turns:
        if isinstance(turn, dict) and turn.get("role", turn.get("from")) in ("user", "human"):
            text = turn.get("content", turn.get("value"))
            if isinstance(text, str):
                yield text
    if isinstance(value.get("prompt"), str):
        yield value["prompt"]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    if not isinstance(value, dict):
        return
    for key in _MESSAGE_KEYS:
        turns = value.get(key)
        if isinstance(turns, list):
            for turn in turns:
                if isinstance(turn, dict) and turn.get("role", turn.get("from")) in ("assistant", "gpt"):
                    text = turn.get("content", turn.get("value"))
                    if isinstance(text, str):
                        yield text
            return
    yield from (value[key] for key in TEXT_KEYS if isinstance(value.get(key), str))
