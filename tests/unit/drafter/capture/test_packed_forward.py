"""The packed forward against the plain one, uncompiled on a CPU; compiled kernels are compared where they run."""

from __future__ import annotations

import pytest
import torch

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture import llama_backend
from breakeven.drafter.capture.llama_backend import LlamaBackend
from breakeven.drafter.capture.packed_forward import PackedForward, departure

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

LAYERS = (0, 2, 3)


@pytest.fixture
def make_backend(make_target):
    def make(**overrides: object) -> LlamaBackend:
        return LlamaBackend.from_folder(open_folder(make_target(**overrides)), device=torch.device("cpu"), dtype=torch.float32)

    return make


def made_up(lengths, seed=0):
    token_ids = torch.randint(0, 97, (sum(lengths),), generator=torch.Generator().manual_seed(seed))
    return token_ids, [0, *torch.tensor(lengths).cumsum(0).tolist()]


@pytest.mark.parametrize("overrides", [{}, {"num_key_value_heads": 4}, {"tie_word_embeddings": False, "rope_theta": 5e5}])
@pytest.mark.parametrize("lengths", [[256], [100, 3, 120, 1], [250]])
def test_equal_to_the_plain_forward(make_backend, overrides, lengths):
    backend = make_backend(**overrides)
    token_ids, starts = made_up(lengths)
    expected = backend.states(token_ids, starts, LAYERS)
    found = PackedForward(backend._config, backend._weights, 256, compiled=False).states(token_ids, starts, LAYERS)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_it_is_taken_once_it_agrees_and_only_for_captures_of_its_size(make_backend, monkeypatch):
    backend = make_backend(max_position_embeddings=100)
    plain = {lengths: backend.states(*made_up(lengths), LAYERS) for lengths in ((90, 60, 80), (20, 9))}
    sizes = []
    packed_states = PackedForward.states

    def noted(self, token_ids, starts, layers):
        sizes.append(len(token_ids))
        return packed_states(self, token_ids, starts, layers)

    monkeypatch.setattr(PackedForward, "states", noted)
    assert backend.compile_for(256, compiled=False) == ()
    for lengths, expected in plain.items():
        for mine, theirs in zip(backend.states(*made_up(lengths), LAYERS), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert sizes == [251, 230]  # the trial, and the large capture; a small one would be mostly padding


def test_kernels_that_are_wrong_or_fail_are_not_taken(make_backend, monkeypatch):
    backend = make_backend()
    token_ids, starts = made_up([200])
    expected = backend.states(token_ids, starts, LAYERS)
    monkeypatch.setattr(llama_backend, "PackedForward", Shifted)
    (note,) = backend.compile_for(256)
    assert "not used" in note
    assert "rows differ" in note
    monkeypatch.setattr(llama_backend, "PackedForward", Failing)
    (note,) = backend.compile_for(256)
    assert "RuntimeError: no such instruction" in note
    assert torch.equal(backend.states(token_ids, starts, LAYERS)[0], expected[0])


class Uncompiled(PackedForward):
    def __init__(self, config, weights, num_rows, *, compiled):
        super().__init__(config, weights, num_rows, compiled=False)


class Shifted(Uncompiled):
    def states(self, token_ids, starts, layers):
        auxiliary, last = super().states(token_ids, starts, layers)
        return auxiliary.roll(1, 0), last.roll(1, 0)


class Failing(Uncompiled):
    def states(self, token_ids, starts, layers):
        raise RuntimeError("no such instruction\nat line 5")


def test_rounding_is_no_departure_and_nan_is():
    states = torch.randn(200, 8), torch.randn(200, 4)
    nearly = states[0] * (1 + 1e-5), states[1]
    assert departure(nearly, states) is None
    broken = states[0].clone()
    broken[:50] = float("nan")
    assert "auxiliary states of 50 of 200 rows" in departure((broken, states[1]), states)
