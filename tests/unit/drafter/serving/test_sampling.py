from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from breakeven.drafter.serving.sampling import Sampler, greedy_choices


def sampler(temperature: float = 1.0, top_p: float = 1.0, seed: int = 0) -> Sampler:
    return Sampler(temperature, top_p, np.random.default_rng(seed))


def test_temperature_divides_logits():
    logits = torch.tensor([1.0, 3.0, 2.0])
    expected = np.exp(np.array([2.0, 6.0, 4.0]))
    np.testing.assert_allclose(sampler(0.5).probabilities(logits), expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.3, [1]), (0.5, [1]), (0.55, [1, 2]), (0.79, [1, 2]), (0.81, [0, 1, 2]), (1.0, [0, 1, 2, 3])]
)
def test_nucleus_keeps_the_fewest_tokens_that_reach_top_p(top_p, kept):
    truth = torch.tensor([0.15, 0.5, 0.3, 0.05], dtype=torch.float64)
    filtered = np.asarray(sampler(1.0, top_p).probabilities(truth.log()))
    expected = np.zeros(4)
    expected[kept] = truth.numpy()[kept]
    np.testing.assert_allclose(filtered, expected / expected.sum(), atol=1e-12)


def test_nucleus_of_a_large_flat_vocabulary_is_exact():
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.1
    filtered = np.asarray(sampler(1.0, 0.9).probabilities(logits))
    truth = logits.softmax(-1).numpy()
    order = np.argsort(-truth)
    num_kept = int(np.searchsorted(np.cumsum(truth[order]), 0.9)) + 1
    assert set(np.flatnonzero(filtered)) == set(order[:num_kept])
    np.testing.assert_allclose(filtered[order[:num_kept]], truth[order[:num_kept]] / truth[order[:num_kept]].sum(), rtol=1e-9)


@pytest.mark.parametrize("top_p", [1.0, 0.7])
@pytest.mark.parametrize("drafts", [[], [2], [0, 1]])
def test_emitted_tokens_follow_the_target_whatever_was_drafted(drafts, top_p):
    logits = torch.randn(len(drafts) + 1, 5, generator=torch.Generator().manual_seed(len(drafts)))
    chooser = sampler(0.8, top_p, seed=3)
    truth = np.stack([chooser.probabilities(row) for row in logits])
    counts = np.zeros((len(drafts) + 1, 5))
    for _ in range(4000):
        for position, token in enumerate(chooser.verify(logits, drafts)):
            counts[position, token] += 1
    for position, observed in enumerate(counts):
        possible = truth[position] > 0
        assert observed[~possible].sum() == 0
        if observed.sum() > 50:
            assert stats.chisquare(observed[possible], truth[position][possible] * observed.sum()).pvalue > 1e-3
    for position, draft in enumerate(drafts):
        assert counts[position + 1].sum() == counts[position, draft]


def test_greedy_choices_flag_near_ties():
    choices, near_ties = greedy_choices(torch.tensor([[1.0, 5.0, 2.0], [3.0, 3.00005, 0.0], [3.0, 3.001, 0.0]]))
    assert choices == [1, 1, 1]
    assert near_ties == [False, True, False]
