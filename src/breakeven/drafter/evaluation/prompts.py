"""Which prompts of a file may judge a drafter, and how the target sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from breakeven.drafter.data.prompt_records import lines_of
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError, PromptsError

__all__ = ["RenderedPrompt", "render_prompts", "training_lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt:
    """The prompt that asks the target for its next answer, as token ids."""

    prompt_id: str
    kind: str
    token_ids: tuple[int, ...]


def training_lines(path: Path) -> frozenset[int]:
    """Which of a file's lines that hold something (counted from 0) are marked as for training: they may not judge a drafter.

    Raises:
        DataError: the file cannot be read, or everything in it is for training.
    """
    marked, total = set(), 0
    for total, (_, line) in enumerate(lines_of(path), start=1):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # the reader of prompts names it
        if isinstance(record, dict) and record.get("split") == "train":
            marked.add(total - 1)
    if total and len(marked) == total:
        raise DataError(
            f"{path}: all of its {total} prompts are for training, so they say nothing about unseen ones; "
            'expected some with "split": "held_out", or a file without splits'
        )
    return frozenset(marked)


def render_prompts(
    target: TargetFiles, prompts: Iterable[tuple[str, str, Sequence[Mapping[str, Any]]]]
) -> tuple[RenderedPrompt, ...]:
    """Render (id, kind, messages) with the target's chat template.

    Raises:
        PromptsError: the template refuses a prompt, or its tokens leave no room in the target's context; names its id.
    """
    rendered = []
    for prompt_id, kind, messages in prompts:
        token_ids = target.prompt_ids(messages)
        if len(token_ids) >= target.context_length:
            raise PromptsError(
                f"prompt {prompt_id!a} has {len(token_ids)} tokens; the target's context holds {target.context_length}: "
                "leave it out or shorten it"
            )
        rendered.append(RenderedPrompt(prompt_id=prompt_id, kind=kind, token_ids=token_ids))
    return tuple(rendered)
