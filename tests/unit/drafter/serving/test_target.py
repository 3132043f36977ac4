from __future__ import annotations

import pytest
import torch

from breakeven.drafter.reference.llama import llama
from breakeven.drafter.serving.layers import KVCache, Rotary, Span
from breakeven.drafter.serving.target import Target


@pytest.fixture
def model(make_target, load_target):
    config, weights = load_target(make_target())
    target = Target(config, weights, KVCache(config, 3, 128, torch.float32), Rotary(config, 128, torch.float32))
    return target, config, weights


def run(target: Target, pieces: list[tuple[int, int, torch.Tensor]], auxiliary: tuple[int, ...] = ()):
    """Forward of (slot, start, tokens) pieces together; logits and states split again by piece."""
    counts = [len(tokens) for _, _, tokens in pieces]
    with torch.inference_mode():
        hidden, states = target.forward(
            torch.cat([tokens for _, _, tokens in pieces]),
            [Span(slot, start, len(tokens)) for slot, start, tokens in pieces],
            auxiliary,
        )
        logits = target.logits(hidden)
    return logits.split(counts), states.split(counts) if states is not None else None


def test_ragged_prompts_in_one_pass_equal_each_alone(model):
    target, config, weights = model
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, 97, (length,), generator=generator) for length in (1, 7, 40)]
    logits, states = run(target, [(slot, 0, prompt) for slot, prompt in enumerate(prompts)], (1, 2, 3))
    for prompt, mine, auxiliary in zip(prompts, logits, states, strict=True):
        expected, streams = llama(prompt, config, weights)
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(auxiliary, torch.cat(streams[1:4], dim=-1), rtol=1e-4, atol=1e-4)


def test_cached_pieces_of_any_size_equal_the_whole(model):
    target, config, weights = model
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randint(0, 97, (length,), generator=generator) for length in (60, 75))
    expected_first, _ = llama(first, config, weights)
    expected_second, _ = llama(second, config, weights)
    run(target, [(2, 0, first[:20]), (0, 0, second[:20])])
    for start, end, other_start, other_end in ((20, 21, 20, 24), (21, 25, 24, 25), (25, 30, 25, 70), (30, 60, 70, 75)):
        logits, _ = run(target, [(2, start, first[start:end]), (0, other_start, second[other_start:other_end])])
        torch.testing.assert_close(logits[0], expected_first[start:end], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logits[1], expected_second[other_start:other_end], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("slots", [(0, 1, 2), (2, 1, 0), (2, 0), (1,)])
def test_the_order_of_slots_does_not_matter(model, slots):
    target, config, weights = model
    generator = torch.Generator().manual_seed(6)
    sequences = [torch.randint(0, 97, (length,), generator=generator) for length in (30, 22, 41)][: len(slots)]
    run(target, [(slot, 0, tokens[:-3]) for slot, tokens in zip(slots, sequences, strict=True)])
    logits, _ = run(target, [(slot, len(tokens) - 3, tokens[-3:]) for slot, tokens in zip(slots, sequences, strict=True)])
    for mine, tokens in zip(logits, sequences, strict=True):
        torch.testing.assert_close(mine, llama(tokens, config, weights)[0][-3:], rtol=1e-4, atol=1e-4)


def test_rejected_rows_leave_no_trace(model):
    target, config, weights = model
    tokens = torch.randint(0, 97, (30,), generator=torch.Generator().manual_seed(5))
    run(target, [(1, 0, tokens[:20])])
    run(target, [(1, 20, torch.tensor([int(tokens[20]), 90, 91, 92]))])
    logits, _ = run(target, [(1, 21, tokens[21:25])])
    torch.testing.assert_close(logits[0], llama(tokens, config, weights)[0][21:25], rtol=1e-4, atol=1e-4)
