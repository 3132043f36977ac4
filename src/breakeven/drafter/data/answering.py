"""From prompts to a training file: which answers are missing, and what becomes of each as it arrives.

Where the answers come from is another matter: `in_process` and `served` both hand in `Answer`s, in any order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from breakeven.drafter.data.answer_file import AnswerFile
from breakeven.drafter.data.answer_records import answer_record
from breakeven.drafter.data.asks import Answer, AnswerSettings, Source, wanted_answers
from breakeven.drafter.data.prompt_records import PromptRecord
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.time_left import TimeLeft
from breakeven.drafter.data.training_records import Header
from breakeven.errors import DataError

__all__ = ["Collected", "Progress", "collect_answers"]

# A killed process loses no more than this; a flush is one system call.
FLUSH_S = 1.0
# A template that can render no answer is noticed before forty thousand were paid for.
UNUSABLE_AT_START = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`num_done` of `num_wanted` answers, those of earlier runs included; the rate is this run's. `left_s` None: not known yet."""

    num_done: int
    num_wanted: int
    num_tokens: int
    tokens_per_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What is in the file now. `num_removed_bytes` is what an earlier, killed run had left of its last line."""

    num_answers: int
    num_tokens: int
    num_new: int
    num_duplicates: int
    skipped: Mapping[str, int]
    num_looping: int
    num_removed_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "answers": self.num_answers,
            "answer_tokens": self.num_tokens,
            "new": self.num_new,
            "new_looping": self.num_looping,
            "duplicates": self.num_duplicates,
            "skipped": dict(self.skipped),
        }

    def lines(self, path: Path) -> list[str]:
        """For people."""
        lines = [f"{path}: {self.num_answers} answers with {self.num_tokens} tokens, {self.num_new} of them new"]
        if self.num_removed_bytes:
            lines.append(f"  a last line of {self.num_removed_bytes} bytes, cut off when an earlier run was stopped, was removed")
        if self.num_new:
            lines.append(f"  {self.num_looping} of the new answers loop ({self.num_looping / self.num_new:.0%}); they are marked")
        if self.num_duplicates:
            lines.append(f"  {self.num_duplicates} answers were equal to an earlier one of the same prompt and left out")
        lines += [f"  {count} left out: {reason}" for reason, count in sorted(self.skipped.items(), key=lambda item: -item[1])[:5]]
        return lines


def collect_answers(
    path: Path,
    prompts: Sequence[PromptRecord],
    settings: AnswerSettings,
    source: Source,
    *,
    target: TargetFiles | None,
    template_variables: Mapping[str, Any] | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Collected:
    """Bring the training file to where it holds every wanted answer. Killed at any moment, the same call goes on.

    The prompts are part of what makes two calls the same: with others, a prompt could have changed sides.

    Raises:
        DataError: the file is another target's or another call's, cannot be written, or no answer can be rendered.
        EngineError: the source gave up; what it had handed in is in the file.
    """
    asks = wanted_answers(prompts, settings)
    header = Header(
        target=target.identity if target is not None else None,
        settings={**asdict(settings), "prompts": _digest(prompts), **_variables(template_variables)},
    )
    with AnswerFile(path, header) as file:
        missing = [ask for ask in asks if ask.id not in file.done]
        taking = _Taking(file, target, num_wanted=len(asks), num_missing=len(missing), tell=tell)
        try:
            if missing:
                source.fetch(missing, taking.take)
        finally:
            file.flush()
        return Collected(
            num_answers=file.num_answers,
            num_tokens=file.num_tokens,
            num_new=taking.num_new,
            num_duplicates=taking.num_duplicates,
            skipped=dict(taking.skipped),
            num_looping=taking.num_looping,
            num_removed_bytes=file.removed_bytes,
        )


def _digest(prompts: Sequence[PromptRecord]) -> str:
    """Sixteen hex digits over the prompts and their sides, in whatever order."""
    lines = sorted(f"{prompt.id} {prompt.split}" for prompt in prompts)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _variables(template_variables: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"template_variables": dict(template_variables)} if template_variables else {}


class _Taking:
    """Turns each answer into a line as it comes in."""

    def __init__(
        self,
        file: AnswerFile,
        target: TargetFiles | None,
        *,
        num_wanted: int,
        num_missing: int,
        tell: Callable[[Progress], None],
    ) -> None:
        self._file = file
        self._target = target
        self._num_wanted = num_wanted
        self._num_missing = num_missing
        self._tell = tell
        self._start_s = self._flushed_s = time.monotonic()
        self._num_taken = self._num_new_tokens = self._num_unusable = self._num_answered = 0
        self._time_left = TimeLeft()
        self.num_new = self.num_duplicates = self.num_looping = 0
        self.skipped: dict[str, int] = {}

    def take(self, answer: Answer) -> None:
        self._num_taken += 1
        record, reason = None, answer.skipped
        self._num_answered += reason is None
        if reason is None:
            try:
                record = answer_record(answer, self._target)
            except DataError as error:
                reason = str(error)
                self._num_unusable += 1
                if self.num_new == 0 and self._num_unusable >= UNUSABLE_AT_START:
                    raise DataError(
                        f"none of the first {self._num_unusable} answers can be used, the last because {reason}"
                    ) from error
        if record is None:
            assert reason is not None
            self.skipped[reason] = self.skipped.get(reason, 0) + 1
            self._file.skip(answer.ask.id, reason)
        else:
            self._num_new_tokens += len(record.token_ids) - record.num_prompt_tokens
            if self._file.add(record):
                self.num_new += 1
                self.num_looping += record.looping is not None
            else:
                self.num_duplicates += 1
        now_s = time.monotonic()
        left_s = self._time_left(self._num_answered, self._num_missing - self._num_taken, now_s)
        if now_s - self._flushed_s >= FLUSH_S or self._num_taken == self._num_missing:
            self._flushed_s = now_s
            self._file.flush()
            self._say(now_s - self._start_s, left_s)

    def _say(self, elapsed_s: float, left_s: float | None) -> None:
        self._tell(
            Progress(
                num_done=self._num_wanted - self._num_missing + self._num_taken,
                num_wanted=self._num_wanted,
                num_tokens=self._file.num_tokens,
                tokens_per_s=self._num_new_tokens / elapsed_s if elapsed_s > 0 else 0.0,
                left_s=left_s,
            )
        )
