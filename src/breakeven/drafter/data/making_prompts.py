"""`data prompts` as one call: sample, read, combine, split, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.drafter.data.combinations import combined_prompts
from breakeven.drafter.data.generator import Generate
from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id, write_prompt_records
from breakeven.drafter.data.splitting import SplitPrompts, split_prompts
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import refuse_to_replace
from breakeven.drafter.data.user_turns import sampled_prompts
from breakeven.errors import DataError, UsageError
from breakeven.loadgen.prompts import read_prompts

__all__ = ["MadePrompts", "PromptSettings", "make_prompts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """`num_sampled` user turns are tried; `max_tokens`, `temperature` and `top_p` are theirs."""

    num_sampled: int
    combinations: bool
    files: tuple[Path, ...]
    held_out_share: float
    max_tokens: int
    temperature: float
    top_p: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePrompts:
    """What was written, and what was left out on the way."""

    path: Path
    split: SplitPrompts
    num_tried: int
    num_sampled: int

    def as_json(self) -> Mapping[str, Any]:
        by_kind: dict[str, Counter[str]] = {}
        for record in self.split.records:
            by_kind.setdefault(record.kind, Counter())[record.split] += 1
        return {
            "prompts": len(self.split.records),
            "train": sum(record.split == "train" for record in self.split.records),
            "held_out": sum(record.split == "held_out" for record in self.split.records),
            "kinds": {kind: dict(counts) for kind, counts in sorted(by_kind.items())},
            "tried_user_turns": self.num_tried,
            "finished_user_turns": self.num_sampled,
            "duplicates": self.split.num_duplicates,
            "dropped_for_held_out_topics": self.split.num_dropped,
            "groups_of_near_duplicates": self.split.num_groups,
        }

    def lines(self) -> list[str]:
        """For people."""
        found = self.as_json()
        lines = [f"{self.path}: {found['prompts']} prompts, {found['train']} for training, {found['held_out']} held out"]
        if self.num_tried:
            lines.append(f"  {self.num_sampled} of {self.num_tried} sampled user turns were finished and say something")
        lines.append(
            f"  left out: {self.split.num_duplicates} duplicates, {self.split.num_dropped} that touch a held-out topic; "
            f"{self.split.num_groups} groups of near-duplicates were kept on one side each"
        )
        for side, what in (("train", "for training"), ("held_out", "held out, so no accept length can be known")):
            if not found[side]:
                lines.append(f"  no prompt is {what}: make more prompts, or change --held-out")
        return lines


def make_prompts(
    path: Path,
    settings: PromptSettings,
    *,
    target: TargetFiles | None,
    generate: Callable[[], Generate],
    tell: Callable[[int, int, int], None] = lambda _done, _total, _tokens: None,
) -> MadePrompts:
    """Write the prompts file; files are read before anything is sampled.

    generate: gives the generator, asked only if user turns are sampled.
    tell: (tries done, tries in all, tokens written).

    Raises:
        UsageError: no source of prompts was named.
        PromptsError, DataError: a file that cannot be read or written, a template without a place for a user's turn.
    """
    if settings.num_sampled and target is None:
        raise UsageError("sampling user turns needs the model that writes them: give --target, or --sampled 0")
    if not (settings.num_sampled or settings.combinations or settings.files):
        raise UsageError("no source of prompts: give --target to sample some, --from FILE, or leave --no-combinations out")
    refuse_to_replace(path)
    free = [record for file in settings.files for record in _from_file(file)]
    sampled: tuple[PromptRecord, ...] = ()
    if settings.num_sampled and target is not None:
        sampled = sampled_prompts(
            target,
            generate(),
            count=settings.num_sampled,
            seed=settings.seed,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            tell=lambda done, num_tokens: tell(done, settings.num_sampled, num_tokens),
        )
    split = split_prompts(
        combined_prompts() if settings.combinations else (), [*free, *sampled], held_out_share=settings.held_out_share
    )
    if not split.records:
        raise DataError(f"{path}: no prompt is left to write; sample more with --sampled, or add --from FILE")
    write_prompt_records(path, split.records)
    return MadePrompts(path=path, split=split, num_tried=settings.num_sampled, num_sampled=len(sampled))


def _from_file(file: Path) -> list[PromptRecord]:
    if file.suffix.lower() == ".txt":
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror}); expected text, one prompt a line") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: not UTF-8 at byte {error.start}; expected text, one prompt a line") from error
        found: list[tuple[str, tuple[dict[str, str], ...]]] = [
            ("custom", ({"role": "user", "content": line.strip()},)) for line in lines if line.strip()
        ]
        if not found:
            raise DataError(f"{file}: no prompts in it; expected text, one prompt a line")
    else:
        found = [
            (prompt.kind, tuple({"role": role, "content": content} for role, content in prompt.messages))
            for prompt in read_prompts(file)
        ]
    return [
        PromptRecord(id=prompt_id(messages), kind=kind, messages=messages, split="train", source="file") for kind, messages in found
    ]
