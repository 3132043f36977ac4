"""The packed forward against the plain one: uncompiled, compiled for a CPU, and on a GPU where there is one."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture import llama_backend
from breakeven.drafter.capture.llama_backend import LlamaBackend
from breakeven.drafter.capture.packed_forward import PackedForward, departure
from breakeven.drafter.capture.sample_mask import BLOCK, block_mask

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


def assert_rows_equal(found, expected, within=1e-5):
    """To a share of each row's length."""
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        assert float(((mine - theirs).norm(dim=-1) / theirs.norm(dim=-1)).max()) < within


@pytest.mark.parametrize("overrides", [{}, {"num_key_value_heads": 4}, {"tie_word_embeddings": False, "rope_theta": 5e5}])
@pytest.mark.parametrize("lengths", [[256], [100, 3, 120, 1], [250], [1] * 200, [128, 128], [129, 127], [5]])
def test_equal_to_the_plain_forward(make_backend, overrides, lengths):
    backend = make_backend(**overrides)
    token_ids, starts = made_up(lengths)
    expected = backend.states(token_ids, starts, LAYERS)
    found = PackedForward(backend._config, backend._weights, 256, compiled=False).states(token_ids, starts, LAYERS)
    assert_rows_equal(found, expected)


# after the first, every batch must meet kernels that are there
BATCHES = ([100, 3, 120, 1], [256], [250], [1] * 200, [128, 128], [129, 127], [7] * 30)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_compiled_it_is_equal_too_and_no_batch_compiles_again(make_backend):
    backend = make_backend(hidden_size=64, head_dim=16)
    packed = PackedForward(backend._config, backend._weights, 256, compiled=True)
    for number, lengths in enumerate(BATCHES):
        token_ids, starts = made_up(lengths, seed=number)
        with torch._dynamo.config.patch(error_on_recompile=number > 0):
            found = packed.states(token_ids, starts, LAYERS)
        assert_rows_equal(found, backend.states(token_ids, starts, LAYERS), within=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_it_is_taken_and_equal_and_the_host_waits_for_nothing(make_target, dtype):
    folder = make_target(hidden_size=256, head_dim=64)
    # matrices as large as the fixture's amplify rounding: in bfloat16 up to 78 of 251 rows are then a quarter of their length from
    # those in float32, with a quarter of it none is a thirtieth
    weights = load_file(folder / "model.safetensors")
    calmer = {name: weight * (0.25 if weight.dim() > 1 else 1.0) for name, weight in weights.items()}
    save_file(calmer, folder / "model.safetensors")
    backend = LlamaBackend.from_folder(open_folder(folder), device=torch.device("cuda"), dtype=dtype)
    batches = [(token_ids.cuda(), starts) for token_ids, starts in (made_up(lengths) for lengths in BATCHES)]
    expected = [backend.states(*batch, LAYERS) for batch in batches]
    assert backend.compile_for(256) == ()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch._dynamo.config.patch(error_on_recompile=True):
            found = [backend._packed.states(*batch, LAYERS) for batch in batches]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for mine, theirs in zip(found, expected, strict=True):
        assert departure(mine, theirs) is None


class Largest(TorchDispatchMode):
    """How many elements the largest tensor has that is made."""

    num_elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.num_elements = max(self.num_elements, made.untyped_storage().nbytes() // made.element_size())
        return made


def test_the_mask_is_never_made_row_by_row():
    num_rows = 16_384
    starts = torch.arange(0, num_rows + 1, 64).numpy()
    with Largest() as largest:
        mask = block_mask(torch.arange(num_rows, dtype=torch.int32) // 64, starts)
    assert mask.shape[-2:] == (num_rows, num_rows)
    assert largest.num_elements <= 2 * (num_rows // BLOCK) * (num_rows // BLOCK + 1)


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
