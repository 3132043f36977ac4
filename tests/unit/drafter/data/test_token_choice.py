from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.drafter.data.token_choice import choose_tokens
from breakeven.drafter.serving.sampling import Sampler


def choose(logits: torch.Tensor, temperature: float, top_p: float, uniforms: torch.Tensor) -> torch.Tensor:
    rows = logits.expand(len(uniforms), -1)
    return choose_tokens(rows, torch.full((len(uniforms),), temperature), top_p, uniforms)


def test_temperature_zero_takes_the_most_likely():
    logits = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(choose_tokens(logits, torch.zeros(20), 0.9, torch.rand(20)), logits.argmax(-1))


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 0.01])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_shares_drawn_are_the_probabilities_of_the_server_s_sampler(top_p, temperature):
    logits = torch.randn(40, generator=torch.Generator().manual_seed(1)) * 2
    expected = Sampler(temperature, top_p, np.random.default_rng(0)).probabilities(logits)
    # an even grid of uniform numbers draws each token as often as its share of the grid
    grid = (torch.arange(20_000) + 0.5) / 20_000
    shares = torch.bincount(choose(logits, temperature, top_p, grid), minlength=40) / 20_000
    torch.testing.assert_close(shares.double(), expected, atol=1e-3, rtol=0)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.sampled_from([-100.0, -3.0, -1.0, 0.0, 0.5, 4.0, 30.0]), min_size=1, max_size=12),
    top_p=st.floats(0.01, 1.0),
    uniform=st.sampled_from([0.0, 0.3, 0.999, float(np.nextafter(np.float32(1), np.float32(0)))]),
)
def test_no_token_outside_the_nucleus_is_ever_drawn(values, top_p, uniform):
    logits = torch.tensor(values)
    token = int(choose(logits, 1.0, top_p, torch.tensor([uniform]))[0])
    probabilities = logits.softmax(-1)
    assert probabilities[token] > 0
    # everything strictly more likely weighs less than top_p, else the token is not needed to reach it
    assert probabilities[probabilities > probabilities[token]].sum() < top_p + 1e-6
