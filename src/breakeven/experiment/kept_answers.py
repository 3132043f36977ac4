"""Answers of `breakeven equal` while they come: lines are only ever added, so a kill at any moment loses the line being written.

    {"breakeven": "greedy answers", "schema_version": 1, "settings": {"max_tokens": 64, "concurrency": 8}}
    {"launch": "equal/plain/1", "arm": "plain", "configuration": {"dtype": "auto", ...}, "facts": {"version": "0.32.0", ...}}
    {"arm": "plain", "pass": 1, "prompt": "chat-3", "asked": "61c1...", "text": "...", "tokens": [...], ..., "error": null}

Opened again, the file tells which answers it holds. A request that failed is no answer: it is asked again. The run's lock
(`run_lock`) keeps a second writer off.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from breakeven.errors import StoreError
from breakeven.experiment.run_folder import aside
from breakeven.experiment.run_lock import RunLock
from breakeven.inputs.checking import shown
from breakeven.inputs.flat import flat
from breakeven.loadgen.answers import MAX_BODY_BYTES, GreedyAnswer
from breakeven.loadgen.samples import Prompt

__all__ = ["FOLDER", "KeptAnswers", "set_answers_aside"]

FOLDER = "equality"
KIND_OF_FILE = "greedy answers"
SCHEMA_VERSION = 1
HEADER_BEGINS = orjson.dumps({"breakeven": KIND_OF_FILE})[:-1]
# tokens are kept as the hexadecimal digits of their bytes
MAX_LINE_BYTES = 4 * MAX_BODY_BYTES
# What a server says of itself that two launches of one arm must have in common.
SAME = ("engine", "version", "dtype", "model", "unreleased_kernels")

Key = tuple[str, int, str, str]


class KeptAnswers:
    """A context manager over `equality/answers.jsonl` of a run's folder. Passes are counted from 1.

    Every method may raise StoreError.
    """

    def __init__(self, folder: Path, *, max_tokens: int, concurrency: int) -> None:
        self.file = folder / FOLDER / "answers.jsonl"
        self._settings: dict[str, object] = {"max_tokens": max_tokens, "concurrency": concurrency}
        self._answers: dict[Key, GreedyAnswer] = {}
        self._configurations: dict[str, Mapping[str, Any]] = {}
        self._launches: dict[str, int] = {}
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._descriptor = -1
        self._size = 0
        # answers that an earlier start had kept
        self.num_kept = 0

    def __enter__(self) -> KeptAnswers:
        try:
            self.file.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self.file}: cannot be written ({error.strerror}); expected a folder of your own") from error
        try:
            self._take_stock()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)

    def answer(self, arm: str, number: int, prompt: Prompt) -> GreedyAnswer | None:
        """What `arm` said to `prompt` in pass `number`; None: not asked, or the request failed before this start."""
        return self._answers.get(_key(arm, number, prompt))

    def facts(self, arm: str) -> Mapping[str, Any] | None:
        """What the last launch of `arm` said of itself; None where there was none."""
        return self._facts.get(arm)

    def check(self, arm: str, configuration: Mapping[str, Any]) -> None:
        """
        Raises:
            StoreError: answers are kept of `arm` configured otherwise; every key that differs is named.
        """
        if arm not in self._configurations:
            return
        stored = self._configurations[arm]
        # keys that the release that wrote it did not have tell nothing
        given = {key: value for key, value in configuration.items() if key in stored}
        before, now = ({key: value for key, value in flat(table) if value != {}} for table in (stored, given))
        self._refuse_unless_same({key: (before.get(key), now.get(key)) for key in sorted({*before, *now})}, f"arm {arm}'s ")

    def next_launch(self, arm: str, number: int) -> str:
        """A name for a launch of `arm`; every launch has its own, and so its own log."""
        launch = f"equal/{arm}/{number}"
        earlier = self._launches.get(launch, 0)
        return f"{launch}.{earlier + 1}" if earlier else launch

    def launched(self, arm: str, number: int, configuration: Mapping[str, Any], facts: Mapping[str, object]) -> str:
        """Note a launch; what is odd where its server is not the one that gave the answers kept, and then nothing is noted."""
        before = self._facts.get(arm, {})
        other = [key for key in SAME if key in before and key in facts and before[key] != facts[key]]
        if other:
            told = "; ".join(f"{key} was {shown(before[key])} and is {shown(facts[key])}" for key in other)
            return f"its server is not the one that gave the answers kept in {self.file} ({told})"
        line = {"launch": f"equal/{arm}/{number}", "arm": arm, "configuration": configuration, "facts": facts}
        self._write(orjson.dumps(line, default=str))
        self._take_launch(orjson.loads(orjson.dumps(line, default=str)))
        return ""

    def add(self, arm: str, number: int, prompt: Prompt, answer: GreedyAnswer) -> None:
        """Keep one answer; texts and tokens are other people's, and JSON is the only thing they can be."""
        self._write(orjson.dumps({"arm": arm, "pass": number, **_row(prompt, answer)}))
        self._answers[_key(arm, number, prompt)] = answer

    def _write(self, line: bytes) -> None:
        line += b"\n"
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            # half a line would spoil the next one
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise StoreError(
                f"{self.file}: cannot be written ({error.strerror}); what is in it is kept: make room, run the same command again"
            ) from error
        self._size += len(line)

    def _take_stock(self) -> None:
        with os.fdopen(os.dup(self._descriptor), "rb") as opened:
            opened.seek(0)
            for number, line in enumerate(iter(lambda: opened.readline(MAX_LINE_BYTES + 1), b""), start=1):
                if not line.endswith(b"\n"):
                    if len(line) > MAX_LINE_BYTES:
                        raise self._broken(number, f"longer than {MAX_LINE_BYTES:,} bytes")
                    if number == 1 and not HEADER_BEGINS.startswith(line[: len(HEADER_BEGINS)]):
                        raise self._broken(number, "it is no header")
                    break
                try:
                    found = orjson.loads(line)
                    if number == 1:
                        self._take_header(found)
                    elif "launch" in found:
                        self._take_launch(found)
                    else:
                        self._take_answer(found)
                except (ValueError, TypeError, LookupError, AttributeError) as error:
                    raise self._broken(number, str(error)) from error
                self._size += len(line)
        # what a killed check left of its last line
        os.ftruncate(self._descriptor, self._size)
        if self._size == 0:
            header = {"breakeven": KIND_OF_FILE, "schema_version": SCHEMA_VERSION, "settings": self._settings}
            self._write(orjson.dumps(header))
        self.num_kept = len(self._answers)

    def _take_header(self, found: Mapping[str, Any]) -> None:
        if found["breakeven"] != KIND_OF_FILE:
            raise ValueError(f'"breakeven" is {shown(found["breakeven"])}')
        if found["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema {shown(found['schema_version'])}, this version reads {SCHEMA_VERSION}")
        self._refuse_unless_same({key: (found["settings"][key], value) for key, value in self._settings.items()}, "")

    def _take_launch(self, found: Mapping[str, Any]) -> None:
        arm, launch = _text(found["arm"]), _text(found["launch"])
        self._configurations[arm] = dict(found["configuration"])
        self._facts[arm] = dict(found["facts"])
        self._launches[launch] = self._launches.get(launch, 0) + 1

    def _take_answer(self, found: Mapping[str, Any]) -> None:
        answer = _answer(found)
        key = (_text(found["arm"]), int(found["pass"]), answer.prompt_id, _text(found["asked"]))
        if answer.error is None:
            self._answers[key] = answer

    def _refuse_unless_same(self, values: Mapping[str, tuple[object, object]], whose: str) -> None:
        differing = {key: pair for key, pair in values.items() if pair[0] != pair[1]}
        changed = [f"{whose}{key} was {shown(before)} and is {shown(now)}" for key, (before, now) in differing.items()]
        if changed:
            raise StoreError(
                f"{self.file}: holds answers that were asked for otherwise: {'; '.join(changed)}. Undo the change to go on, "
                "give this plan another --name, or ask everything again with breakeven equal --fresh"
            )

    def _broken(self, number: int, fault: str) -> StoreError:
        return StoreError(
            f"{self.file}, line {number}: none of breakeven equal ({fault}); remove the line, or ask everything again with --fresh"
        )


def set_answers_aside(folder: Path) -> Path | None:
    """Move the answers of a run out of the way, keeping them; their new place, or None where there were none.

    Raises:
        StoreError: the run is in use, or they cannot be moved.
    """
    answers = folder / FOLDER
    if not answers.exists():
        return None
    with RunLock(folder):
        return aside(answers)


def _key(arm: str, number: int, prompt: Prompt) -> Key:
    return arm, number, prompt.id, _asked(prompt)


def _asked(prompt: Prompt) -> str:
    """A prompt that was edited under its old name is another one."""
    return hashlib.sha256(orjson.dumps(prompt.messages)).hexdigest()[:16]


def _row(prompt: Prompt, answer: GreedyAnswer) -> dict[str, object]:
    return {
        "prompt": answer.prompt_id,
        "asked": _asked(prompt),
        "text": answer.text,
        "tokens": answer.tokens,
        "token_ids": answer.token_ids,
        "alternatives": answer.alternatives,
        "num_tokens": answer.num_tokens,
        "finish_reason": answer.finish_reason,
        "degenerate": answer.degenerate,
        "error": answer.error,
    }


def _answer(found: Mapping[str, Any]) -> GreedyAnswer:
    """The reverse of `_row`. Raises what such look-ups raise where the line is of another kind."""
    return GreedyAnswer(
        prompt_id=_text(found["prompt"]),
        text=_text(found["text"]),
        tokens=tuple(map(_text, found["tokens"])),
        token_ids=tuple(map(int, found["token_ids"])),
        alternatives=tuple(tuple(_alternatives(there)) for there in found["alternatives"]),
        num_tokens=int(found["num_tokens"]),
        finish_reason=_text_or_none(found["finish_reason"]),
        degenerate=_text_or_none(found["degenerate"]),
        error=_text_or_none(found["error"]),
    )


def _alternatives(there: object) -> Iterator[tuple[str, float]]:
    if not isinstance(there, list):
        raise TypeError(f"{shown(there)} in place of alternatives")
    for token, log_probability in there:
        # JSON has no word for a number that is none
        yield _text(token), math.nan if log_probability is None else float(log_probability)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value)} in place of text")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)
