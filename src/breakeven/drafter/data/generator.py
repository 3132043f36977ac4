"""The one thing that the data side asks of torch: token ids for token ids, in large batches.

`drafter.data.generation` is the fast way; tests bring slow ones of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from breakeven.errors import UsageError

__all__ = ["Finished", "Generate", "in_process"]

# (index of the prompt, ids of the answer, "stop" or "length"). A stop token is the last of the ids.
Finished = tuple[int, Sequence[int], str]


class Generate(Protocol):
    """Answers to `prompts` as they finish, in any order, each prompt's once.

    temperature: 0 is greedy; a sequence gives one for each prompt. What a prompt draws depends on `seed` and its index.
    """

    def __call__(
        self,
        model_folder: Path,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        temperature: float | Sequence[float],
        top_p: float,
        seed: int,
        stop_ids: Collection[int] | None,
    ) -> Iterator[Finished]: ...


def in_process() -> Generate:
    """The fast generator of this installation.

    Raises:
        UsageError: torch is not installed.
    """
    try:
        from breakeven.drafter.data.generation import generate
    except ModuleNotFoundError as error:
        raise UsageError(
            f"answers in this process need {error.name}: pip install 'breakeven[train]', or name a running server with "
            "--target http://HOST:PORT"
        ) from error
    return generate
