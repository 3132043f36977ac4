"""Training files read as samples, one at a time: 8 million tokens in a few seconds, whatever the file's size in this memory.

A reader asks for one side of the split and gets nothing of the other. Everything that a sample claims is checked on the way: a
training run must not learn hours later that line 40 000 was cut in the middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from breakeven.drafter.data.prompt_records import SPLITS, Split, checked_messages, lines_of
from breakeven.drafter.data.rendering import Span, render_conversation
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles, TargetIdentity
from breakeven.drafter.data.training_records import Header
from breakeven.errors import BreakevenError, DataError

__all__ = ["ReadReport", "read_header", "read_records", "read_samples"]


@dataclass(slots=True, kw_only=True)
class ReadReport:
    """What was left out, counted while samples are read."""

    num_samples: int = 0
    num_tokens: int = 0
    num_answer_tokens: int = 0
    num_cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def read_header(path: Path) -> Header:
    """The header of a training file.

    Raises:
        DataError: unreadable, empty, or no training file.
    """
    for number, line in lines_of(path):
        return Header.from_line(line, f"{path}, line {number}")
    raise DataError(f"{path}: empty; expected training data as breakeven data answers writes it")


def read_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The lines after the header as JSON objects, with their numbers; ids and types are not checked.

    Raises:
        DataError: the file cannot be read, or a line is not a JSON object.
    """
    lines = lines_of(path)
    next(lines, None)
    for number, line in lines:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            cut = "" if line.endswith(b"\n") else "; the last line was cut off: run breakeven data answers again to mend the file"
            raise DataError(f"{path}, line {number}: not JSON ({error.msg}){cut}") from error
        if not isinstance(found, dict):
            raise DataError(f"{path}, line {number}: not a JSON object")
        yield number, found


def read_samples(
    path: Path,
    *,
    split: Split,
    target: TargetFiles | TargetIdentity | None = None,
    max_tokens: int | None = None,
    longer: Literal["cut", "drop", "refuse"] = "cut",
    keep_looping: bool = True,
    report: ReadReport | None = None,
) -> Iterator[Sample]:
    """The samples of one side of the split, in the order of the file.

    target: holds the file to this target; with its files, answers without token ids are rendered.
    max_tokens: the longest sample wanted, None for the target's context. A longer one is cut at its end, dropped or refused; one
        whose answer would be cut away whole is dropped.
    keep_looping: whether answers marked as looping are samples.
    report: counts what was read and what was left out.

    Raises:
        DataError: another target's file, a broken line, or a sample that contradicts itself; names file and line.
    """
    header = read_header(path)
    _check_target(path, header, target)
    files = target if isinstance(target, TargetFiles) else None
    if max_tokens is None and files is not None:
        max_tokens = files.context_length
    identity = header.target or (files.identity if files is not None else target if isinstance(target, TargetIdentity) else None)
    vocab_size = identity.vocab_size if identity is not None else None
    counts = report if report is not None else ReadReport()
    sides: dict[str, str] = {}
    for number, record in read_records(path):
        where = f"{path}, line {number}"
        if "skipped" in record:
            counts.left_out["skipped"] += 1
            continue
        try:
            prompt_id, side = record["prompt_id"], record["split"]
            if side not in SPLITS or not isinstance(prompt_id, str):
                raise ValueError(f'"split" is {side!r} and "prompt_id" {prompt_id!r}; expected "train" or "held_out", and text')
            if sides.setdefault(prompt_id, side) != side:
                raise ValueError(f"prompt {prompt_id} stands on both sides of the split")
            if side != split:
                counts.left_out["other side of the split"] += 1
                continue
            if not keep_looping and record["looping"] is not None:
                counts.left_out["looping"] += 1
                continue
            token_ids, answers = _tokens(record, vocab_size, files)
            if max_tokens is not None and len(token_ids) > max_tokens:
                if longer == "refuse":
                    raise ValueError(
                        f"{len(token_ids)} tokens, more than the {max_tokens} asked for; cut or drop longer ones, or allow for them"
                    )
                token_ids = token_ids[:max_tokens]
                answers = [(begin, min(end, max_tokens)) for begin, end in answers if begin < max_tokens]
                if longer == "drop" or not answers:
                    counts.left_out[f"longer than {max_tokens} tokens"] += 1
                    continue
                counts.num_cut += 1
            kind = record["kind"]
            if not isinstance(kind, str):
                raise ValueError(f'"kind" is {kind!r}; expected text')
        except (ValueError, TypeError, LookupError, BreakevenError) as error:
            missing = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(f"{where}: {missing}") from error
        mask: tuple[bool, ...] = ()
        for begin, end in answers:
            mask += (False,) * (begin - len(mask)) + (True,) * (end - begin)
        counts.num_samples += 1
        counts.num_tokens += len(token_ids)
        counts.num_answer_tokens += sum(end - begin for begin, end in answers)
        yield Sample(
            sample_id=prompt_id,
            kind=kind,
            token_ids=tuple(token_ids),
            # cut in the middle of a prompt, a conversation ends with tokens that nobody is trained on
            loss_mask=mask + (False,) * (len(token_ids) - len(mask)),
            num_prompt_tokens=answers[-1][0],
        )


def _tokens(record: Mapping[str, Any], vocab_size: int | None, files: TargetFiles | None) -> tuple[list[int], list[Span]]:
    """The ids of a record and the spans that the target wrote, the last one up to the end."""
    token_ids, num_prompt_tokens = record["token_ids"], record["num_prompt_tokens"]
    if not isinstance(token_ids, list) or type(num_prompt_tokens) is not int:
        raise ValueError('"token_ids" should be a list and "num_prompt_tokens" a whole number')
    if not token_ids:
        if files is None:
            raise ValueError("no token ids; give the target's folder, so that the answer can be rendered")
        rendered = render_conversation(files, checked_messages(record["messages"]), turns="last")
        return list(rendered.token_ids), list(rendered.answers)
    if set(map(type, token_ids)) != {int}:
        raise ValueError('"token_ids" holds something that is no whole number')
    if min(token_ids) < 0 or (vocab_size is not None and max(token_ids) >= vocab_size):
        wrong = next(token for token in token_ids if token < 0 or (vocab_size is not None and token >= vocab_size))
        raise ValueError(f"token id {wrong} lies outside the vocabulary of {vocab_size} tokens; was this made with another model?")
    if not 0 < num_prompt_tokens < len(token_ids):
        raise ValueError(
            f"{num_prompt_tokens} prompt tokens of {len(token_ids)}: the loss mask would cover "
            f"{'everything' if num_prompt_tokens <= 0 else 'nothing'}"
        )
    answers = [*record.get("earlier_answers", ()), (num_prompt_tokens, len(token_ids))]
    if len(answers) > 1:
        flat = [place for span in answers for place in span]
        in_order = all(type(place) is int for place in flat) and sorted(set(flat)) == flat and flat[0] > 0
        if not in_order or any(len(span) != 2 for span in answers):
            raise ValueError('"earlier_answers" should be pairs of places in ascending order, all before "num_prompt_tokens"')
    return token_ids, answers


def _check_target(path: Path, header: Header, target: TargetFiles | TargetIdentity | None) -> None:
    wanted = target.identity if isinstance(target, TargetFiles) else target
    found = header.target
    if wanted is None or found is None:
        return
    for what, is_same in (
        ("weights or configuration", found.fingerprint == wanted.fingerprint),
        ("tokenizer", found.tokenizer_sha256 == wanted.tokenizer_sha256),
        ("chat template", found.template_sha256 == wanted.template_sha256),
        ("vocabulary size", found.vocab_size == wanted.vocab_size),
    ):
        if not is_same:
            raise DataError(
                f"{path}: made with the target {found.name} ({found.fingerprint}), and {wanted.name} ({wanted.fingerprint}) has "
                f"another {what}; a drafter learns the target whose answers these are: name that one, or make answers with this one"
            )
