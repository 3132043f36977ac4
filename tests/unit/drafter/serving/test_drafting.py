from __future__ import annotations

import random

import pytest
import torch

from breakeven.drafter.reference.eagle3 import draft_chain
from breakeven.drafter.reference.llama import llama
from breakeven.drafter.serving.drafting import Eagle3Drafter, NgramDrafter
from breakeven.drafter.serving.layers import KVCache, Rotary, Span


def last_match(history: list[int], num_drafts: int, shortest: int, longest: int) -> list[int]:
    for size in range(longest, shortest - 1, -1):
        for end in range(len(history) - 1, size - 1, -1):
            if history[end - size : end] == history[-size:]:
                return history[end : end + num_drafts]
    return []


@pytest.mark.parametrize(("shortest", "longest"), [(1, 3), (2, 2), (2, 5)])
def test_ngram_lookup_equals_a_search_of_the_whole_history(shortest, longest):
    chance = random.Random(7)
    drafter = NgramDrafter(2, shortest, longest)
    for slot in (0, 1, 0):
        drafter.start(slot)
        history = [chance.randrange(4) for _ in range(chance.randrange(1, 9))]
        while len(history) < 60:
            drafts = drafter.propose([history], [Span(slot, 0, 1)], None, 3)
            assert drafts == [last_match(history, 3, shortest, longest)]
            history += [chance.randrange(4) for _ in range(chance.randrange(1, 5))]


YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"own_embedding": True},
        {"fc_norm": True},
        {"norm_output": True},
        {"norm_before_fc": True, "norm_before_residual": True},
        {"fc_norm": True, "norm_output": True, "rope_scaling": YARN},
    ],
)
def test_eagle3_drafts_of_a_batch_equal_the_plain_chain(make_target, make_head, load_target, load_head, options):
    target, target_weights = load_target(make_target())
    config, weights = load_head(make_head(**options), target)
    cache, rotary = KVCache(config.shape, 3, 128, torch.float32), Rotary(config.shape, 128, torch.float32)
    drafter = Eagle3Drafter(config, weights, target_weights.embed, cache, rotary)
    generator = torch.Generator().manual_seed(9)
    histories = {slot: torch.randint(0, 97, (length,), generator=generator).tolist() for slot, length in ((2, 30), (0, 5))}
    settled = {2: 0, 0: 0}
    for new_tokens in (1, 3, 1, 2):  # what each round emitted, so what the target has settled since the last one
        auxiliary = {}
        for slot, history in histories.items():
            _, streams = llama(torch.tensor(history[:-1]), target, target_weights)
            auxiliary[slot] = torch.cat([streams[layer] for layer in config.auxiliary_layers], dim=-1)
        spans = [Span(slot, settled[slot], len(history) - 1 - settled[slot]) for slot, history in histories.items()]
        states = torch.cat([auxiliary[span.slot][span.start :] for span in spans])
        with torch.inference_mode():
            drafts = drafter.propose(list(histories.values()), spans, states, 4)
        for slot, history, mine in zip(histories, histories.values(), drafts, strict=True):
            assert mine == draft_chain(history, auxiliary[slot], 4, config, weights, target_weights.embed)
            settled[slot] = len(history) - 1
            history += torch.randint(0, 97, (new_tokens,), generator=generator).tolist()
