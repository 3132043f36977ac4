"""The one thing that the data side asks of torch: token ids for token ids, in large batches.

`drafter.data.generation` is the fast way; tests bring slow ones of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from breakeven.errors import UsageError

__all__ = ["Finished", "Generate", "in_process", "usual_turns"]

# User turns to sample where nobody says how many. A model of 135M writes them in about half a minute on a GPU, and in six minutes
# on two cores of a CPU (0.4 s each), where as many as on a GPU would take four hours.
USUAL_TURNS = {"cuda": 40_000, "cpu": 1_000}

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


def usual_turns() -> tuple[int, str]:
    """How many user turns to sample on this machine, and on what: "cuda" or "cpu". Without torch as on a CPU."""
    try:
        from breakeven.drafter.devices import chosen_device
    except ModuleNotFoundError:
        return USUAL_TURNS["cpu"], "cpu"
    kind = chosen_device(None).type
    return USUAL_TURNS[kind], kind


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
