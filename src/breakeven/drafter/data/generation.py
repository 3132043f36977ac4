"""Answers of a Llama-architecture target in process, for tens of thousands of prompts: the host's side.

A served engine answers users; here nobody waits for a first token, so the batch is as large as memory allows and is kept full:
slots whose answers ended are given the next prompts in groups, and the host looks only every few steps.

Reproducible: what a prompt draws depends on `seed` and its index alone. In float32, greedy answers are those of plain decoding but
for near-ties. In bfloat16, sums are rounded differently in batches of another size, so a near-tie may fall the other way; the same
call on the same machine and versions repeats itself, as far as its matrix library does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.data.batched_decoder import BatchedDecoder, Request
from breakeven.drafter.devices import chosen_device
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.errors import PromptsError, UsageError

__all__ = ["Answer", "generate"]

logger = logging.getLogger(__name__)

# Steps between two looks at what has finished. Looking waits for a GPU; a slot idles half of this on average.
STEPS_PER_LOOK = {"cuda": 16}
# Of the slots: about as many prompts as two looks find room for are made ready while the device works.
READY_SHARE = 8
MAX_BATCH = {"cuda": 2048, "cpu": 32}
# Of the memory that is free once the weights are there; the rest is for activations, logits and the prompts' pass.
CACHE_MEMORY_SHARE = 0.6
# One padded pass over new prompts holds at most this many tokens: it bounds activations.
MAX_PREFILL_TOKENS = 65_536
POSITION_STEP = 64
# Compiling takes about as long as decoding this many tokens without it.
COMPILE_FROM_TOKENS = 1_000_000

Answer = tuple[int, tuple[int, ...], str]


def generate(
    model_folder: Path,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float | Sequence[float] = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop_ids: Collection[int] | None = None,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Iterator[Answer]:
    """Answer every prompt; yields (index of the prompt, token ids, finish reason) as answers end, in no particular order.

    The token ids include the stop token where one came. The reason is "stop", or "length" for `max_new_tokens` or the end of the
    context. `temperature` 0 is greedy; a sequence gives one for each prompt. `stop_ids` None takes the model's own. `device` None
    takes CUDA where there is one; `dtype` None is bfloat16 there and float32 on a CPU.

    Arguments are checked and weights are read before the first answer is asked for.

    Raises:
        UsageError: an argument out of range, or a batch that does not fit in memory.
        PromptsError: a prompt that is empty, longer than the context, or has ids the model does not know; names its index.
        CheckpointError: a folder that this decoder cannot run.
    """
    place = chosen_device(device)
    kind = dtype if dtype is not None else torch.bfloat16 if place.type == "cuda" else torch.float32
    temperatures = [float(temperature)] * len(prompts) if isinstance(temperature, int | float) else [float(t) for t in temperature]
    _check_arguments(len(prompts), max_new_tokens, temperatures, top_p, batch_size)
    folder = open_folder(model_folder)
    config = LlamaConfig.from_folder(folder)
    _check_prompts(prompts, config)
    if not prompts:
        return iter(())
    longest = max(map(len, prompts))
    num_positions = min(-(-(longest + max_new_tokens) // POSITION_STEP) * POSITION_STEP, config.max_positions)
    # longer answers cannot be, and places are kept for what there can be
    max_new_tokens = min(max_new_tokens, config.max_positions)
    stops = config.eos_token_ids if stop_ids is None else stop_ids
    too_large = UsageError(
        f"{model_folder}: does not fit in the memory of {place} with batch_size {batch_size or 'chosen by itself'} and "
        f"{num_positions} positions a sequence; take a smaller batch_size, fewer new tokens or shorter prompts"
    )
    try:
        weights = LlamaWeights.from_folder(folder, config, kind).to(place)
        num_slots = min(batch_size or _batch_size(config, num_positions, kind, place), len(prompts))
        decoder = BatchedDecoder(
            config,
            weights,
            num_slots=num_slots,
            num_positions=num_positions,
            max_new_tokens=max_new_tokens,
            top_p=top_p,
            stop_ids=sorted(stops),
            compiled=len(prompts) * max_new_tokens >= COMPILE_FROM_TOKENS,
        )
    except torch.OutOfMemoryError as error:
        raise too_large from error
    logger.info("generating %d answers: %d at once, %d positions each, on %s", len(prompts), num_slots, num_positions, place)
    steps = STEPS_PER_LOOK.get(place.type, 1)
    return _within_memory(_answers(decoder, prompts, temperatures, seed, max_new_tokens, frozenset(stops), steps), too_large)


def _within_memory(answers: Iterator[Answer], too_large: UsageError) -> Iterator[Answer]:
    try:
        yield from answers
    except torch.OutOfMemoryError as error:
        raise too_large from error


def _answers(
    decoder: BatchedDecoder,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    seed: int,
    max_new_tokens: int,
    stops: frozenset[int],
    steps_per_look: int,
) -> Iterator[Answer]:
    def request(index: int) -> Request:
        limit = min(max_new_tokens, decoder.num_positions - len(prompts[index]))
        return Request(
            prompt=torch.as_tensor(prompts[index], dtype=torch.int64),
            limit=limit,
            temperature=temperatures[index],
            uniforms=_uniforms(seed, index, limit) if temperatures[index] > 0 else None,
        )

    # Longest first: neighbours have like lengths, so groups need little padding, and memory runs out at once or never.
    waiting = deque(sorted(range(len(prompts)), key=lambda index: -len(prompts[index])))
    ready: deque[tuple[int, Request]] = deque()
    free = list(range(decoder.num_slots))
    running: dict[int, int] = {}  # slot -> prompt
    ended: list[Answer] = []
    while waiting or ready or running:
        while free and (ready or waiting):
            _prepare(ready, waiting, len(free), request)
            most = max(1, MAX_PREFILL_TOKENS // len(ready[0][1].prompt))
            group = [(free.pop(), *ready.popleft()) for _ in range(min(most, len(ready), len(free)))]
            running |= {slot: index for slot, index, _ in group}
            decoder.admit([slot for slot, _, _ in group], [each for _, _, each in group])
        decoder.run(steps_per_look)
        # while the device works, the caller gets the answers of the look before, and the next prompts are made ready
        yield from ended
        _prepare(ready, waiting, decoder.num_slots // READY_SHARE, request)
        done = decoder.finished(list(running))
        ended = [
            (running.pop(slot), tuple(tokens), "stop" if tokens[-1] in stops else "length")
            for slot, tokens in zip(done, decoder.answers(done), strict=True)
        ]
        free += done
    yield from ended


def _prepare(ready: deque[tuple[int, Request]], waiting: deque[int], count: int, request: Callable[[int], Request]) -> None:
    while waiting and len(ready) < count:
        index = waiting.popleft()
        ready.append((index, request(index)))


def _uniforms(seed: int, index: int, count: int) -> Tensor:
    generator = np.random.Generator(np.random.Philox(key=[seed, index]))
    return torch.from_numpy(generator.random(count, dtype=np.float32))


def _batch_size(config: LlamaConfig, num_positions: int, dtype: torch.dtype, device: torch.device) -> int:
    """As many sequences as fit, up to the point where a larger batch stops paying."""
    most = MAX_BATCH.get(device.type, MAX_BATCH["cpu"])
    if device.type != "cuda":
        return most
    free_bytes, _ = torch.cuda.mem_get_info(device)
    slot_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim * num_positions * dtype.itemsize
    return max(1, min(most, int(free_bytes * CACHE_MEMORY_SHARE) // slot_bytes))


def _check_arguments(
    num_prompts: int, max_new_tokens: int, temperatures: Sequence[float], top_p: float, batch_size: int | None
) -> None:
    if max_new_tokens < 1:
        raise UsageError(f"max_new_tokens is {max_new_tokens}; expected at least 1")
    if len(temperatures) != num_prompts:
        raise UsageError(f"{len(temperatures)} temperatures for {num_prompts} prompts; expected one number, or one for each prompt")
    for temperature in temperatures:
        if not 0 <= temperature < float("inf"):
            raise UsageError(f"temperature is {temperature}; expected 0 (greedy) or a positive number")
    if not 0 < top_p <= 1:
        raise UsageError(f"top_p is {top_p}; expected a number above 0, at most 1 (1 keeps every token)")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size is {batch_size}; expected at least 1")


def _check_prompts(prompts: Sequence[Sequence[int]], config: LlamaConfig) -> None:
    for index, prompt in enumerate(prompts):
        if not len(prompt):
            raise PromptsError(f"prompt {index} (counted from 0) has no tokens; expected at least one")
        if len(prompt) >= config.max_positions:
            raise PromptsError(
                f"prompt {index} (counted from 0) has {len(prompt)} tokens; the model's context of {config.max_positions} leaves "
                "no room for an answer: shorten or remove it"
            )
        if min(prompt) < 0 or max(prompt) >= config.vocab_size:
            raise PromptsError(
                f"prompt {index} (counted from 0) has token ids from {min(prompt)} to {max(prompt)}; the model knows 0 to "
                f"{config.vocab_size - 1}: was it tokenized for another model?"
            )
