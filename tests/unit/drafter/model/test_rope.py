"""Frequencies of rotary positions under each scaling, against transformers."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from breakeven.drafter.model.rope import inverse_frequencies, rope_magnitude


def test_linear_scaling_divides_every_frequency():
    plain = inverse_frequencies({}, 8, 10000.0)
    torch.testing.assert_close(inverse_frequencies({"type": "linear", "factor": 4.0}, 8, 10000.0), plain / 4)


def test_llama3_scaling_keeps_high_and_stretches_low_frequencies():
    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    ratio = inverse_frequencies(rope, 128, 500000.0) / inverse_frequencies({}, 128, 500000.0)
    assert ratio[0] == 1.0
    assert ratio[-1] == pytest.approx(1 / 8)
    assert (ratio.diff() <= 0).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta_fast": 16, "beta_slow": 2},
        {"truncate": False},
        {"attention_factor": 1.5},
        {"mscale": 1.0, "mscale_all_dim": 0.5},
    ],
)
def test_yarn_is_the_function_of_transformers(options):
    rope = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096} | options
    theirs = transformers.LlamaConfig(
        hidden_size=128,
        num_attention_heads=1,
        head_dim=128,
        max_position_embeddings=32768,
        rope_parameters=rope | {"rope_theta": 5e5},
    )
    frequencies, magnitude = ROPE_INIT_FUNCTIONS["yarn"](theirs, device="cpu")
    torch.testing.assert_close(inverse_frequencies(rope, 128, 5e5), frequencies)
    assert rope_magnitude(rope) == pytest.approx(magnitude)


def test_only_yarn_has_a_magnitude():
    assert rope_magnitude({"rope_type": "linear", "factor": 4.0}) == 1.0
