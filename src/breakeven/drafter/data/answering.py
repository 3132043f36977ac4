"""From prompts to a training file: which answers are wanted, which are missing, and what becomes of each as it arrives.

Where the answers come from is another matter: `in_process` and `served` both hand in `Answer`s, in any order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from breakeven.drafter.data.answer_file import AnswerFile
from breakeven.drafter.data.looping import looping_reason
from breakeven.drafter.data.prompt_records import PromptRecord
from breakeven.drafter.data.rendering import RenderingError, render_conversation
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.time_left import TimeLeft
from breakeven.drafter.data.training_records import AnswerRecord, Header, Sampling, TokenSource
from breakeven.errors import DataError, UsageError

__all__ = ["Answer", "AnswerSettings", "Ask", "Collected", "Progress", "Source", "collect_answers", "wanted_answers"]

# A killed process loses no more than this; a flush is one system call.
FLUSH_S = 1.0
# A template that can render no answer is noticed before forty thousand were paid for.
UNUSABLE_AT_START = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """greedy_share: of all answers, those at temperature 0; a prompt gets at most one of these, since a second would be equal."""

    samples_per_prompt: int = 1
    max_tokens: int = 384
    greedy_share: float = 0.5
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for name, fine, expected in (
            ("samples_per_prompt", self.samples_per_prompt >= 1, "at least 1"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("greedy_share", 0 <= self.greedy_share <= 1, "a number from 0 to 1"),
            ("temperature", 0 < self.temperature < 100, "above 0 (greedy answers are what greedy_share is for)"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
        ):
            if not fine:
                raise UsageError(f"{name} is {getattr(self, name)}; expected {expected}")
        if self.samples_per_prompt > 1 and self.greedy_share == 1:
            raise UsageError("samples_per_prompt above 1 with a greedy_share of 1: greedy answers to one prompt are all equal")

    def as_json(self) -> dict[str, Any]:
        return {
            "samples_per_prompt": self.samples_per_prompt,
            "max_tokens": self.max_tokens,
            "greedy_share": self.greedy_share,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One answer that is wanted."""

    id: str
    prompt: PromptRecord
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for one ask: ids where they are known, and the message. `skipped` says why there is none."""

    ask: Ask
    message: Mapping[str, Any] | None = None
    prompt_ids: Sequence[int] | None = None
    answer_ids: Sequence[int] | None = None
    finish_reason: str = "stop"
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`num_done` of `num_wanted` answers, those of earlier runs included; the rate is this run's. `left_s` None: not known yet."""

    num_done: int
    num_wanted: int
    num_tokens: int
    tokens_per_s: float
    left_s: float | None


class Source(Protocol):
    """Fetches answers and calls `take` with each, from one thread."""

    def fetch(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> None: ...


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


def wanted_answers(prompts: Sequence[PromptRecord], settings: AnswerSettings) -> list[Ask]:
    """Every answer of a complete file, in the order of the prompts; the same in every run."""
    asks: list[Ask] = []
    greedy = Sampling(temperature=0.0, top_p=1.0)
    sampled = Sampling(temperature=settings.temperature, top_p=settings.top_p)
    for prompt in prompts:
        digest = hashlib.sha256(f"greedy {settings.seed} {prompt.id}".encode()).digest()
        has_greedy = int.from_bytes(digest[:8]) / 2**64 < settings.greedy_share * settings.samples_per_prompt
        asks += [
            Ask(id=f"{prompt.id}-{number}", prompt=prompt, sampling=greedy if number == 0 and has_greedy else sampled)
            for number in range(settings.samples_per_prompt)
        ]
    return asks


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
        settings={**settings.as_json(), "prompts": _digest(prompts), **_variables(template_variables)},
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
                record = _record(answer, self._target)
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


def _record(answer: Answer, target: TargetFiles | None) -> AnswerRecord:
    """The line of one answer, rendered here where its ids are not known.

    Raises:
        DataError: nothing was written, or the template cannot render it.
    """
    assert answer.message is not None
    messages = (*answer.ask.prompt.messages, {"role": "assistant", **answer.message})
    text = str(answer.message.get("reasoning_content") or "") + str(answer.message.get("content") or "")
    tokens: TokenSource = "none"
    token_ids: tuple[int, ...] = ()
    num_prompt_tokens = 0
    if answer.answer_ids is not None and answer.prompt_ids is not None:
        if not answer.answer_ids:
            raise DataError("the answer has no tokens")
        tokens, token_ids = "exact", (*answer.prompt_ids, *answer.answer_ids)
        if target is not None and max(token_ids) >= target.identity.vocab_size:
            raise DataError(
                f"token id {max(token_ids)} lies outside the vocabulary of {target.identity.vocab_size}; another model answered"
            )
        num_prompt_tokens = len(answer.prompt_ids)
    elif not text.strip():
        raise DataError("the answer is empty")
    elif target is not None:
        try:
            rendered = render_conversation(target, messages, turns="last")
        except UsageError as error:
            raise RenderingError(str(error)) from error
        tokens, token_ids, num_prompt_tokens = "rendered", rendered.token_ids, rendered.answers[-1][0]
        if answer.finish_reason != "stop" and token_ids[-1] in target.stop_token_ids:
            # the template ends every turn, the target had not ended this one
            token_ids = token_ids[:-1]
    return AnswerRecord(
        id=answer.ask.id,
        prompt_id=answer.ask.prompt.id,
        kind=answer.ask.prompt.kind,
        topic=answer.ask.prompt.topic,
        split=answer.ask.prompt.split,
        messages=messages,
        tokens=tokens,
        token_ids=token_ids,
        num_prompt_tokens=num_prompt_tokens,
        sampling=answer.ask.sampling,
        finish_reason=answer.finish_reason,
        looping=looping_reason(text, finished=answer.finish_reason == "stop"),
    )
