"""A training file while it grows: lines are only ever added, so a run killed at any moment loses the line it was writing.

Opened again, the file tells which answers it holds; a last line that was cut off is removed. One process writes at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from breakeven.drafter.data.prompt_records import MAX_LINE_BYTES
from breakeven.drafter.data.training_records import AnswerRecord, Header, skipped_line
from breakeven.errors import DataError

__all__ = ["AnswerFile"]


class AnswerFile:
    """A context manager. `done` are the ids of answers that are there or were skipped."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._seen: set[bytes] = set()
        self.done: set[str] = set()
        self.num_answers = 0
        self.num_tokens = 0
        self.removed_bytes = 0

    def __enter__(self) -> AnswerFile:
        try:
            self._file = self._path.open("a+b")
        except OSError as error:
            raise DataError(f"{self._path}: cannot be written ({error.strerror}); choose another --out") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._take_stock()
        except BlockingIOError as error:
            self._file.close()
            raise DataError(f"{self._path}: another process is writing it; wait for it or choose another --out") from error
        except BaseException:
            # on a full disk closing fails as writing did, and that was said
            with contextlib.suppress(OSError):
                self._file.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError as failure:
            # a disk that was full when it was flushed is full now: that was said
            if error is None:
                raise self._cannot_write(failure) from failure

    def add(self, record: AnswerRecord) -> bool:
        """Write one answer; False if the same answer to the same prompt is there already, which is then noted as skipped.

        Raises:
            DataError: the disk is full or the file cannot be written; what was written before is whole.
        """
        digest = _digest(record.prompt_id, record.token_ids or str(record.messages[-1]["content"]))
        is_new = digest not in self._seen
        self._write(record.line() if is_new else skipped_line(record.id, "the same answer as an earlier one"))
        self._seen.add(digest)
        self.done.add(record.id)
        if is_new:
            self.num_answers += 1
            self.num_tokens += len(record.token_ids) - record.num_prompt_tokens
        return is_new

    def skip(self, answer_id: str, reason: str) -> None:
        """Note that an answer will not come."""
        self._write(skipped_line(answer_id, reason))
        self.done.add(answer_id)

    def flush(self) -> None:
        """Hand everything to the operating system: from here on only a failing machine can lose it.

        Raises:
            DataError: the disk is full.
        """
        self._guarded(self._file.flush)

    def _write(self, line: bytes) -> None:
        self._guarded(lambda: self._file.write(line))

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> DataError:
        return DataError(
            f"{self._path}: cannot be written ({error.strerror}); whole lines in it are kept: make room, run the same command again"
        )

    def _take_stock(self) -> None:
        self._file.seek(0)
        size = os.fstat(self._file.fileno()).st_size
        number = begin = 0
        while line := self._file.readline(MAX_LINE_BYTES + 1):
            number += 1
            where = f"{self._path}, line {number}"
            if not line.endswith(b"\n"):
                if len(line) > MAX_LINE_BYTES:
                    raise DataError(f"{where}: longer than {MAX_LINE_BYTES:,} bytes; expected training data, give another --out")
                if number == 1 and not self._header.line().startswith(line):
                    Header.from_line(line, where)
                    raise DataError(f"{where}: the header has no line end; give another --out")
                break
            if number == 1:
                self._check_header(Header.from_line(line, where))
            elif line.strip():
                self._take(line, where)
            begin += len(line)
        if begin < size:
            # what a killed run left of its last line
            self.removed_bytes = size - begin
            self._file.truncate(begin)
        if begin == 0:
            self._write(self._header.line())
            self.flush()
        self._file.seek(0, os.SEEK_END)

    def _take(self, line: bytes, where: str) -> None:
        try:
            found = orjson.loads(line)
            answer_id = found["id"]
            if not isinstance(answer_id, str):
                raise TypeError('"id" is not text')
            if "skipped" not in found:
                token_ids = found["token_ids"]
                self._seen.add(_digest(found["prompt_id"], token_ids or str(found["messages"][-1]["content"])))
                self.num_answers += 1
                self.num_tokens += len(token_ids) - found["num_prompt_tokens"]
        except (ValueError, TypeError, LookupError) as error:
            raise DataError(f"{where}: broken ({error}); remove the line, or give another --out") from error
        self.done.add(answer_id)

    def _check_header(self, found: Header) -> None:
        wanted = self._header
        if found.target != wanted.target:
            raise DataError(
                f"{self._path}: holds answers of {_name(found)}, asked for are those of {_name(wanted)} (weights, tokenizer or "
                "chat template differ); answers of two targets do not go into one file: give another --out"
            )
        changed = [
            f"{key} was {found.settings.get(key)!r:.60} and is {wanted.settings.get(key)!r:.60}"
            for key in sorted({*found.settings, *wanted.settings})
            if found.settings.get(key) != wanted.settings.get(key)
        ]
        if changed:
            raise DataError(
                f"{self._path}: was begun with other settings: {'; '.join(changed)}. Use the same ones to go on, or another --out"
            )


def _digest(prompt_id: str, answer: Sequence[int] | str) -> bytes:
    return hashlib.blake2b(orjson.dumps([prompt_id, answer]), digest_size=16).digest()


def _name(header: Header) -> str:
    return f"{header.target.name} ({header.target.fingerprint})" if header.target is not None else "a server without a folder"
