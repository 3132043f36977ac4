from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.drafter.training.order import Order
from breakeven.drafter.training.schedule import rate_share


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60), first=st.integers(0, 200), seed=st.integers(0, 9))
def test_every_sample_once_an_epoch_in_batches_that_fit_found_again_by_counting(lengths, first, seed):
    order = Order(np.array(lengths), 50, 3, seed)
    whole = list(order.from_batch(0))
    assert len(whole) == order.num_batches
    for epoch in range(3):
        seen = np.concatenate([samples for number, samples in whole if number == epoch])
        assert sorted(seen.tolist()) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in samples) <= 50 for _, samples in whole)
    rest = list(order.from_batch(first))
    assert [(epoch, samples.tolist()) for epoch, samples in rest] == [(epoch, samples.tolist()) for epoch, samples in whole[first:]]


def test_epochs_and_seeds_have_orders_of_their_own():
    lengths = np.full(40, 10)
    orders = [np.concatenate([samples for _, samples in Order(lengths, 100, 2, seed).from_batch(0)]) for seed in (0, 1)]
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0][:40], orders[0][40:])


def test_the_rate_rises_then_falls_to_its_share():
    rates = [rate_share(step, 100, 0.1, 0.05) for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert all(now >= later for now, later in pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(0.05)


@pytest.mark.parametrize(("num_steps", "warmup"), [(1, 0.0), (1, 0.5), (2, 0.9)])
def test_the_shortest_trainings_have_a_rate(num_steps, warmup):
    assert all(0 < rate_share(step, num_steps, warmup, 0.1) <= 1 for step in range(num_steps))
