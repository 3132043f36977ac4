"""Conversations that the target has written already (a log of its own traffic) as training data: nothing is asked for again.

Only for answers of the served target itself, quantization and sampling included: a drafter trained on somebody else's answers
learns somebody else. Every assistant turn is trained on, or the last one only. Where the template edits history, a conversation
becomes one sample a turn, each as the target saw it when it wrote that turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from breakeven.drafter.data.looping import looping_reason
from breakeven.drafter.data.prompt_records import PromptRecord, Split, checked_messages, lines_of, prompt_id
from breakeven.drafter.data.rendering import Rendered, RenderingError, render_conversation
from breakeven.drafter.data.splitting import split_prompts
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import AnswerRecord, Header, refuse_to_replace
from breakeven.errors import DataError, UsageError
from breakeven.whole import whole_file

__all__ = ["Imported", "import_conversations"]

FAULTS_SHOWN = 5
# ShareGPT's names for who speaks
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
}

Messages = tuple[Mapping[str, Any], ...]


@dataclass(slots=True, kw_only=True)
class Imported:
    """What was written. `num_turned`: conversations that became one sample a turn, because the template edits history."""

    path: Path
    num_conversations: int = 0
    num_samples: int = 0
    num_answer_tokens: int = 0
    num_held_out: int = 0
    num_turned: int = 0
    num_equal: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        return {
            "conversations": self.num_conversations,
            "samples": self.num_samples,
            "answer_tokens": self.num_answer_tokens,
            "held_out": self.num_held_out,
            "turn_by_turn": self.num_turned,
            "equal": self.num_equal,
            "left_out": dict(self.left_out),
        }

    def lines(self) -> list[str]:
        """For people."""
        told = f"{self.num_samples} samples of {self.num_conversations} conversations, {self.num_answer_tokens} answer tokens"
        lines = [f"{self.path}: {told}, {self.num_held_out} samples held out"]
        if self.num_turned:
            lines.append(f"  {self.num_turned} conversations are one sample a turn: the template edits history")
        if self.num_equal:
            lines.append(f"  {self.num_equal} samples were equal to an earlier one and left out")
        lines += [f"  {count} left out: {reason}" for reason, count in self.left_out.most_common(5)]
        return lines


def import_conversations(
    path: Path,
    files: Sequence[Path],
    target: TargetFiles,
    *,
    turns: Literal["all", "last"] = "all",
    held_out_share: float = 0.05,
    tell: Callable[[int, int, int], None] = lambda _done, _total, _tokens: None,
) -> Imported:
    """Write a training file with what is in `files`, whole or not at all.

    tell: (conversations done, in all, answer tokens).

    Raises:
        DataError: a file that cannot be read or written, broken lines (named), or nothing in them to train on.
    """
    refuse_to_replace(path)
    conversations = [conversation for file in files for conversation in _conversations(file)]
    sides = _sides(conversations, held_out_share)
    made = Imported(path=path, num_conversations=len(conversations))
    header = Header(target=target.identity, settings={"imported": [file.name for file in files], "turns": turns})
    seen: set[tuple[int, ...]] = set()
    try:
        with whole_file(path, replaces=True) as out:
            out.write(header.line())
            for number, (kind, messages) in enumerate(conversations, start=1):
                for record in _records(messages, kind, sides[prompt_id(messages[:-1])], target, turns, made):
                    if record.token_ids in seen:
                        made.num_equal += 1
                        continue
                    seen.add(record.token_ids)
                    made.num_samples += 1
                    made.num_held_out += record.split == "held_out"
                    made.num_answer_tokens += len(record.token_ids) - record.num_prompt_tokens
                    made.num_answer_tokens += sum(end - begin for begin, end in record.earlier_answers)
                    out.write(record.line())
                tell(number, len(conversations), made.num_answer_tokens)
            if not made.num_samples:
                reasons = "; ".join(reason for reason, _ in made.left_out.most_common(2))
                raise DataError(f"{path}: nothing to train on in {len(conversations)} conversations ({reasons})")
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); nothing of it was kept") from error
    return made


def _sides(conversations: Sequence[tuple[str, Messages]], held_out_share: float) -> dict[str, Split]:
    """The side of each prompt, by its id. Several answers to one prompt stand on one side."""
    prompts = [
        PromptRecord(id=prompt_id(messages[:-1]), kind=kind, messages=messages[:-1], split="train", source="file")
        for kind, messages in conversations
    ]
    return {record.id: record.split for record in split_prompts((), prompts, held_out_share=held_out_share).records}


def _records(
    messages: Messages, kind: str, split: Split, target: TargetFiles, turns: Literal["all", "last"], made: Imported
) -> Iterator[AnswerRecord]:
    try:
        yield _record(messages, kind, split, render_conversation(target, messages, turns=turns), made)
        return
    except (RenderingError, UsageError) as error:
        ends = [turn + 1 for turn, message in enumerate(messages) if message["role"] == "assistant"]
        if turns == "last" or len(ends) == 1:
            made.left_out[str(error)] += 1
            return
    made.num_turned += 1
    for end in ends:
        try:
            rendered = render_conversation(target, messages[:end], turns="last")
        except (RenderingError, UsageError) as error:
            made.left_out[str(error)] += 1
        else:
            yield _record(messages[:end], kind, split, rendered, made)


def _record(messages: Messages, kind: str, split: Split, rendered: Rendered, made: Imported) -> AnswerRecord:
    spoken = [message for message in messages if message["role"] == "assistant"][-len(rendered.answers) :]
    texts = [str(message.get("reasoning_content") or "") + str(message["content"]) for message in spoken]
    prompt = prompt_id(messages[:-1])
    return AnswerRecord(
        id=f"{prompt}-{made.num_samples}",
        prompt_id=prompt,
        kind=kind,
        topic=None,
        split=split,
        messages=messages,
        tokens="rendered",
        token_ids=rendered.token_ids,
        num_prompt_tokens=rendered.answers[-1][0],
        sampling=None,
        finish_reason="unknown",
        looping=next(filter(None, (looping_reason(text, finished=True) for text in texts)), None),
        earlier_answers=rendered.answers[:-1],
    )


def _conversations(file: Path) -> Iterator[tuple[str, Messages]]:
    """(kind, messages that end with the assistant's), one a line.

    Raises:
        DataError: broken lines; the first few are named.
    """
    faults: list[str] = []
    num_found = num_faults = 0
    found: list[tuple[str, Messages]] = []
    for number, line in lines_of(file):
        num_found += 1
        try:
            found.append(_conversation(line))
        except (ValueError, RecursionError) as error:
            num_faults += 1
            if len(faults) < FAULTS_SHOWN:
                faults.append(f"{file}, line {number}: {error}")
    if faults:
        more = [f"and {num_faults - len(faults)} more broken lines"] if num_faults > len(faults) else []
        raise DataError("\n".join([*faults, *more]))
    if not num_found:
        raise DataError(f'{file}: no conversations in it; expected JSON Lines with "messages" or "conversations"')
    yield from found


def _turn(turn: object) -> object:
    """A turn of ShareGPT's as a message; what is none is left for the messages' own check."""
    if not isinstance(turn, dict):
        return turn
    speaker = turn.get("from")
    return {"role": SPEAKERS.get(speaker, speaker) if isinstance(speaker, str) else speaker, "content": turn.get("value")}


def _conversation(line: bytes) -> tuple[str, Messages]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise ValueError('not a JSON object; expected "messages" or "conversations"')
    spoken = value.get("messages")
    if spoken is None and isinstance(value.get("conversations"), list):
        spoken = [_turn(turn) for turn in value["conversations"]]
    messages = list(checked_messages(spoken))
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    if len(messages) < 2:
        raise ValueError("no turn of the assistant after another's; expected the target's answers in it")
    kind = value.get("kind")
    return (kind if isinstance(kind, str) and kind else "imported"), tuple(messages)
