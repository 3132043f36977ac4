"""Held-out answers from the target itself: greedy, a little past their ends, with its states at every token.

Two passes of generation: the answers as they are served, and from each answer's end the few tokens that judging the last round
takes. Then one pass of the target over everything for its states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.data.generation import Answer, generate
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.time_left import TimeLeft
from breakeven.drafter.evaluation.held_out import GreedyAnswer, HeldOut
from breakeven.drafter.evaluation.prompts import RenderedPrompt
from breakeven.errors import UsageError
from breakeven.units import format_duration

__all__ = ["TargetCapture", "greedy_answers", "prepare"]

# Tokens of one packed batch of states: enough to keep a GPU busy, little enough to pad cheaply.
TOKENS_AT_ONCE = 16_384
# On a CPU a hundred answers take minutes.
TELL_EVERY_S = 10.0


class TargetCapture(Protocol):
    """`drafter/capture`, or anything that knows the target's states of samples."""

    def capture(self, samples: Sequence[Sample]) -> PackedStates: ...


def greedy_answers(
    target: Path,
    prompts: Sequence[RenderedPrompt],
    *,
    max_tokens: int,
    num_draft_tokens: int,
    stop_ids: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    told: Callable[[str], None] = lambda line: None,
) -> tuple[GreedyAnswer, ...]:
    """The target's greedy answers of at most `max_tokens`, each continued far enough to judge `num_draft_tokens` drafts a round.

    stop_ids: what ends an answer; None takes the model's own. told: is given a line every few seconds.

    Raises:
        UsageError, PromptsError, CheckpointError: see `generate`; or an answer that reached the end of the context.
    """
    beyond = num_draft_tokens - 1
    first = generate(
        target,
        [prompt.token_ids for prompt in prompts],
        max_new_tokens=max_tokens,
        stop_ids=stop_ids,
        dtype=dtype,
        device=device,
    )
    answers: dict[int, tuple[tuple[int, ...], bool]] = {}
    for index, tokens, reason in _counted(first, len(prompts), told):
        answers[index] = tuple(tokens), reason == "stop"
    continued: dict[int, tuple[int, ...]] = {}
    if beyond:
        whole = [prompt.token_ids + answers[index][0] for index, prompt in enumerate(prompts)]
        more = generate(target, whole, max_new_tokens=beyond, stop_ids=(), dtype=dtype, device=device)
        continued = {index: tuple(tokens) for index, tokens, _ in more}
        short = [prompts[index].prompt_id for index, tokens in continued.items() if len(tokens) < beyond]
        if short:
            raise UsageError(
                f"{len(short)} answers reach the end of the target's context (the first: {short[0]}), so their last rounds "
                f"cannot be judged; take shorter prompts, or fewer than {max_tokens} tokens an answer"
            )
    return tuple(
        GreedyAnswer(
            prompt_id=prompt.prompt_id,
            kind=prompt.kind,
            prompt_ids=prompt.token_ids,
            answer_ids=answers[index][0],
            beyond_ids=continued.get(index, ()),
            finished=answers[index][1],
        )
        for index, prompt in enumerate(prompts)
    )


def prepare(answers: Sequence[GreedyAnswer], target: TargetCapture) -> HeldOut:
    """Answers with the target's states at their tokens."""
    batches: list[list[Sample]] = []
    room = 0
    for answer in answers:
        room -= len(answer.token_ids)
        if room < 0:
            batches.append([])
            room = TOKENS_AT_ONCE - len(answer.token_ids)
        batches[-1].append(answer.as_sample())
    return HeldOut(answers=answers, states=tuple(target.capture(batch) for batch in batches))


def _counted(answers: Iterable[Answer], num_wanted: int, told: Callable[[str], None]) -> Iterator[Answer]:
    """`answers` as they come, with a line now and then that says how many of `num_wanted` there are."""
    time_left, told_s = TimeLeft(), time.monotonic()
    for num_done, answer in enumerate(answers, start=1):
        yield answer
        now_s = time.monotonic()
        left_s = time_left(num_done, num_wanted - num_done, now_s)
        if now_s - told_s >= TELL_EVERY_S:
            told_s = now_s
            left = "" if left_s is None else f", about {format_duration(left_s)} left"
            told(f"{num_done} of {num_wanted} prompts answered{left}")
