from __future__ import annotations

import pytest
import torch

from breakeven.drafter.capture.capture import Capture, open_target
from breakeven.drafter.capture.llama_backend import LlamaBackend
from breakeven.drafter.capture.transformers_backend import TransformersBackend
from breakeven.drafter.reference.llama import llama, norm
from breakeven.errors import CheckpointError, DataError, UsageError

LENGTHS = (9, 40, 1, 17, 33)


@pytest.mark.parametrize("tokens_at_once", [None, 45, 1])
def test_captured_states_are_the_plain_model_s_row_by_row(make_target, load_target, random_samples, tokens_at_once):
    folder = make_target()
    config, weights = load_target(folder)
    samples = random_samples(*LENGTHS)
    capture = Capture(open_target(folder, device="cpu"), (1, 2, 3), tokens_at_once=tokens_at_once)
    states = capture.capture(samples)
    assert states.starts.tolist() == [0, 9, 49, 50, 67, 100]
    assert states.auxiliary.shape == (100, 96)
    assert states.last.shape == (100, 32)
    for index, sample in enumerate(samples):
        rows = slice(int(states.starts[index]), int(states.starts[index + 1]))
        assert states.token_ids[rows].tolist() == list(sample.token_ids)
        assert states.loss_mask[rows].tolist() == list(sample.loss_mask)
        _, streams = llama(torch.tensor(sample.token_ids), config, weights)
        torch.testing.assert_close(states.auxiliary[rows], torch.cat(streams[1:4], dim=-1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(states.last[rows], norm(streams[4], weights.norm, config.rms_norm_eps), rtol=1e-4, atol=1e-4)


def test_the_target_s_own_parts(make_target, load_target):
    folder = make_target(tie_word_embeddings=False)
    _, weights = load_target(folder)
    capture = Capture.from_folder(folder, (0, 1, 3), device="cpu")
    assert (capture.hidden_size, capture.vocab_size, capture.num_layers) == (32, 97, 4)
    assert (capture.dtype, capture.device, capture.layers) == (torch.float32, torch.device("cpu"), (0, 1, 3))
    assert torch.equal(capture.embed_weight, weights.embed)
    assert torch.equal(capture.head_weight(), weights.head)
    assert torch.equal(capture.head_weight(torch.tensor([5, 2, 90])), weights.head[[5, 2, 90]])


@pytest.mark.parametrize("layers", [(1, 2), (1, 2, 2), (3, 2, 1), (1, 2, 4), (-1, 2, 3), (1, 2, 3, 4)])
def test_layers_that_are_not_three_rising_inputs_are_refused(make_target, layers):
    with pytest.raises(UsageError, match="three different layer inputs of 0 to 3"):
        Capture.from_folder(make_target(), layers, device="cpu")


def test_a_plain_llama_is_run_by_our_own_forward_and_everything_else_by_transformers(make_target, make_model, make_int4):
    assert isinstance(open_target(make_target(), device="cpu"), LlamaBackend)
    assert isinstance(open_target(make_model("Qwen3", head_dim=8), device="cpu"), TransformersBackend)
    # what our own forward does not compute is left to transformers, not refused
    assert isinstance(open_target(make_model("Llama", attention_bias=True), device="cpu"), TransformersBackend)
    int4, dense = make_int4()
    assert isinstance(open_target(int4, device="cpu"), TransformersBackend)
    assert isinstance(open_target(dense, device="cpu", runner="transformers"), TransformersBackend)
    with pytest.raises(CheckpointError, match="Qwen3ForCausalLM"):
        open_target(dense.parent / "Qwen3", device="cpu", runner="own")


class Faulty:
    """A backend that does to batches what padding, truncation or a prefix cache would do, and nothing to a sample alone."""

    def __init__(self, backend, fault):
        self._backend, self._fault = backend, fault

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def states(self, token_ids, starts, layers):
        auxiliary, last = self._backend.states(token_ids, starts, layers)
        return self._fault(auxiliary, last) if len(starts) > 2 else (auxiliary, last)


FAULTS = {
    "shifted": lambda auxiliary, last: (auxiliary.roll(1, 0), last.roll(1, 0)),
    "only the auxiliary ones shifted": lambda auxiliary, last: (auxiliary.roll(-1, 0), last),
    "layers swapped": lambda auxiliary, last: (auxiliary.view(len(last), 3, -1).flip(1).flatten(1), last),
    "the end left empty": lambda auxiliary, last: (torch.cat([auxiliary[:-5], auxiliary[-5:] * 0]), last),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_audit_finds_states_that_were_moved(make_target, random_samples, fault):
    samples = random_samples(*LENGTHS)
    target = open_target(make_target(), device="cpu")
    capture = Capture(Faulty(target, fault), (1, 2, 3))
    with pytest.raises(DataError, match=r"sample-4: .*run alone"):
        capture.audit(capture.capture(samples), samples, [4])
    sound = Capture(target, (1, 2, 3))
    sound.audit(sound.capture(samples), samples, range(5))


def test_the_audit_runs_by_itself_every_so_often(make_target, random_samples):
    samples = random_samples(*LENGTHS)
    capture = Capture(Faulty(open_target(make_target(), device="cpu"), FAULTS["shifted"]), (1, 2, 3), audit_every=3)
    with pytest.raises(DataError, match="run alone"):
        capture.capture(samples)
    capture = Capture(open_target(make_target(), device="cpu"), (1, 2, 3), audit_every=3)
    audited = []
    capture.audit = lambda states, samples, indices: audited.append(indices)
    for _ in range(7):
        capture.capture(samples)
    assert audited == [[0], [1], [2]]


def test_rows_that_were_lost_are_never_handed_out(make_target, random_samples):
    target = open_target(make_target(), device="cpu")
    capture = Capture(Faulty(target, lambda auxiliary, last: (auxiliary[:-1], last[:-1])), (1, 2, 3))
    with pytest.raises(DataError, match="99 rows of states for 100 tokens"):
        capture.capture(random_samples(*LENGTHS))


def test_numbers_that_overflow_are_named(make_target, random_samples):
    folder = make_target()
    capture = Capture.from_folder(folder, (1, 2, 3), device="cpu", dtype=torch.float16)
    capture._backend._weights.layers[1].down.mul_(1e4)
    with pytest.raises(DataError, match="sample-0, token 0 of 9: the stream entering layer 2 holds NaN or infinity"):
        capture.capture(random_samples(*LENGTHS))


def test_a_sample_longer_than_the_context_is_refused_not_cut(make_target, random_samples):
    capture = Capture.from_folder(make_target(max_position_embeddings=32), (1, 2, 3), device="cpu")
    with pytest.raises(DataError, match="sample-1 has 40 tokens"):
        capture.capture(random_samples(*LENGTHS))
