from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from breakeven.drafter.reference.decoding import greedy, speculative_greedy, speculative_sampling


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_speculative_greedy_emits_what_greedy_does_and_accepts_what_is_right(make_target, load_target, right):
    config, weights = load_target(make_target())
    prompt = [5, 40, 7]
    expected = greedy(prompt, 13, config, weights)
    answer = prompt + expected

    def propose(tokens, streams):
        assert len(streams[0]) == len(tokens) - 1
        coming = answer[len(tokens) : len(tokens) + right]
        wrong = (answer[min(len(tokens) + right, len(answer) - 1)] + 1) % 97
        return [*coming, wrong]

    tokens, accepted = speculative_greedy(prompt, 13, propose, config, weights)
    assert tokens == expected
    assert accepted[:-1] == [right] * (len(accepted) - 1)
    assert len(accepted) == -(-12 // (right + 1))


def test_speculative_sampling_follows_the_target_whatever_the_proposal():
    generator = np.random.default_rng(4)
    target = generator.dirichlet(np.ones(6), size=3)
    proposal = generator.dirichlet(np.ones(6), size=2)
    first, second = np.zeros(6), np.zeros(6)
    for _ in range(6000):
        drafts = [int(generator.choice(6, p=row)) for row in proposal]
        emitted = speculative_sampling(target, proposal, drafts, generator)
        first[emitted[0]] += 1
        if len(emitted) > 1:
            second[emitted[1]] += 1
    assert stats.chisquare(first, target[0] * first.sum()).pvalue > 1e-3
    assert stats.chisquare(second, target[1] * second.sum()).pvalue > 1e-3
    # total variation: the chance that a draft is accepted is the overlap of the two distributions
    overlap = np.minimum(target[0], proposal[0]).sum()
    assert second.sum() / 6000 == pytest.approx(overlap, abs=0.03)
