from __future__ import annotations

import pytest
import torch

from breakeven.drafter.capture.checks import FiniteWatch, check_same_states, check_samples
from breakeven.drafter.capture.packing import pack_tokens
from breakeven.drafter.capture.states import PackedStates
from breakeven.errors import DataError


def random_states(samples, hidden=4):
    packed = pack_tokens(samples, torch.device("cpu"))
    num_tokens = len(packed.token_ids)
    return PackedStates(
        token_ids=packed.token_ids,
        positions=packed.positions,
        samples=packed.samples,
        starts=packed.starts,
        loss_mask=packed.loss_mask,
        auxiliary=torch.randn(num_tokens, 3 * hidden),
        last=torch.randn(num_tokens, hidden),
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("part", "column", "layer"),
    [("auxiliary", 1, "layer 2"), ("auxiliary", 6, "layer 15"), ("auxiliary", 11, "layer 27"), ("last", 0, "final norm")],
)
def test_a_broken_number_is_named_by_sample_token_and_layer(random_samples, value, part, column, layer):
    samples = random_samples(3, 5, 4)
    states = random_states(samples)
    getattr(states, part)[6, column] = value
    with pytest.raises(DataError, match=rf"sample sample-1, token 3 of 5: .*{layer}"):
        FiniteWatch((2, 15, 27)).watch(states, samples)


def test_finite_states_pass(random_samples):
    samples = random_samples(3, 5, 4)
    watch = FiniteWatch((2, 15, 27))
    watch.watch(random_states(samples), samples)
    watch.settle()


MOVES = {
    "shifted": lambda states: states.roll(1, 0),
    "shifted in the second half": lambda states: torch.cat([states[:6], states[5:11]]),
    "last row lost": lambda states: torch.cat([states[:11], states[11:] * 0]),
    "low and high swapped": lambda states: states.view(12, 3, 8).flip(1).reshape(12, 24),
    "first row missing": lambda states: states[1:],
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_the_same_and_no_way_of_moving_states_is(random_samples, dtype, move):
    (sample,) = random_samples(12)
    # neighbouring states of a real model resemble each other, and the first row is far longer than the rest
    auxiliary = (torch.randn(12, 24) + torch.randn(24)).to(dtype)
    last = (torch.randn(12, 8) + torch.randn(8)).to(dtype)
    auxiliary[0] *= 100
    noise = 1 + torch.randn_like(auxiliary) * (1e-5 if dtype == torch.float32 else 4e-3)
    check_same_states(sample, (auxiliary * noise, last), (auxiliary, last), is_routed=False)

    with pytest.raises(DataError, match="sample-0"):
        check_same_states(sample, (move(auxiliary), last), (auxiliary, last), is_routed=False)


def test_a_row_that_went_to_another_expert_is_allowed_but_a_shift_is_not(random_samples):
    (sample,) = random_samples(30)
    auxiliary, last = torch.randn(30, 24), torch.randn(30, 8)
    elsewhere = auxiliary.clone()
    elsewhere[17] = torch.randn(24)
    with pytest.raises(DataError, match="1 of 30 rows"):
        check_same_states(sample, (elsewhere, last), (auxiliary, last), is_routed=False)
    check_same_states(sample, (elsewhere, last), (auxiliary, last), is_routed=True)
    with pytest.raises(DataError, match="30 of 30 rows"):
        check_same_states(sample, (auxiliary.roll(1, 0), last), (auxiliary, last), is_routed=True)


def test_states_that_are_not_numbers_are_never_the_same(random_samples):
    (sample,) = random_samples(4)
    broken = torch.full((4, 24), float("nan"))
    with pytest.raises(DataError):
        check_same_states(sample, (broken, torch.ones(4, 8)), (torch.ones(4, 24), torch.ones(4, 8)), is_routed=False)


def test_samples_that_do_not_fit_the_target_are_named(random_samples):
    samples = random_samples(3, 20)
    check_samples(samples, 97, 20)
    with pytest.raises(DataError, match=r"sample-1 has 20 tokens.*1 to 19"):
        check_samples(samples, 97, 19)
    with pytest.raises(DataError, match=r"sample-1 has token ids .*another model"):
        check_samples(samples, max(samples[1].token_ids), 20)
