from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture.llama_backend import LlamaBackend
from breakeven.drafter.reference.llama import llama, norm


def own(folder, dtype=torch.float32):
    return LlamaBackend.from_folder(open_folder(folder), device=torch.device("cpu"), dtype=dtype)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"num_key_value_heads": 4, "tie_word_embeddings": False},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    ],
    ids=["grouped", "multi-head, untied", "yarn"],
)
def test_states_of_a_packed_batch_are_those_of_the_plain_model_on_each_sample_alone(make_target, load_target, overrides):
    folder = make_target(**overrides)
    config, weights = load_target(folder)
    lengths = [1, 40, 3, 17, 16, 2, 64]
    generator = torch.Generator().manual_seed(2)
    samples = [torch.randint(0, 97, (length,), generator=generator) for length in lengths]
    starts = [0, *accumulate(lengths)]
    auxiliary, last = own(folder).states(torch.cat(samples), starts, (1, 2, 3))
    for sample, first, end in zip(samples, starts[:-1], starts[1:], strict=True):
        logits, streams = llama(sample, config, weights)
        expected = torch.cat([streams[1], streams[2], streams[3]], dim=-1)
        torch.testing.assert_close(auxiliary[first:end], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(last[first:end], norm(streams[4], weights.norm, config.rms_norm_eps), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(last[first:end] @ weights.head.T, logits, rtol=1e-3, atol=1e-3)


def test_layer_zero_is_entered_by_the_embedding(make_target):
    backend = own(make_target())
    token_ids = torch.tensor([5, 6, 7])
    auxiliary, _ = backend.states(token_ids, [0, 3], (0, 1, 2))
    assert torch.equal(auxiliary[:, :32], backend.embed_weight[token_ids])


def test_half_precision_stays_near_the_single_one(make_target):
    folder = make_target()
    token_ids, starts = torch.arange(60) % 97, [0, 25, 60]
    exact, _ = own(folder).states(token_ids, starts, (1, 2, 3))
    half, last = own(folder, torch.bfloat16).states(token_ids, starts, (1, 2, 3))
    assert half.dtype == last.dtype == torch.bfloat16
    assert ((half.float() - exact).norm(dim=-1) / exact.norm(dim=-1)).max() < 0.1
