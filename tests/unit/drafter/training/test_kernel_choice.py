"""Which kernels are trusted: those that agree with the plain ones, forwards and backwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from breakeven.drafter.training import kernels
from breakeven.drafter.training.kernel_choice import choose_kernels, first_that_agrees, made_up_batch
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.vocabulary_loss import softmax_pass


@pytest.fixture
def objective(make_module):
    module, target_head = make_module()
    return FastObjective(module, target_head, 3, torch.float32, Kernels())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("overrides", [{}, {"fc_norm": True, "norm_output": True}])
def test_on_a_gpu_everything_is_compiled_and_agrees(make_module, dtype, overrides):
    module, target_head = make_module(hidden_size=128, head_dim=64, **overrides)
    with torch.no_grad():
        for weight in module.parameters():
            # matrices as large as the fixture's amplify rounding: gradients in bfloat16 then have a cosine of 0.57 to those in
            # float32, of 0.9999 with a quarter of it
            weight.mul_(0.25 if weight.dim() > 1 else 1.0)
    objective = FastObjective(module.cuda(), target_head, 3, dtype, Kernels())
    chosen = choose_kernels(objective, 512, 100)
    assert chosen.compiled
    assert chosen.notes == ()


def test_without_a_gpu_nothing_is_compiled_and_that_is_said(objective):
    chosen = choose_kernels(objective, 128, 40)
    assert not chosen.compiled
    assert "no GPU" in chosen.notes[0]


def test_the_made_up_batch_has_prompts_and_answers_of_many_samples(objective):
    batch = made_up_batch(objective, 256, 50)
    assert len(batch.starts) == 7
    # 40 answer tokens each of five samples; of the last one, 6 tokens long, the token at 1 has no row before it to be guessed from
    assert batch.judged.num_trained[0] == 5 * 40 + 4
    assert (batch.judged.num_trained == batch.judged.num_counted).all()


def failing(*arguments):
    raise RuntimeError("triton says no\nat line 3")


def wrong_gradient(student, teacher, scales):
    gradient, loss, correct = softmax_pass(student, teacher, scales)
    return -gradient, loss, correct


def frozen_positions(state, norm, weight, embedded, positions, *rest):
    return kernels.project(state, norm, weight, embedded, torch.zeros_like(positions), *rest)


def test_the_first_that_agrees_is_taken_and_the_others_are_named(objective):
    candidates = {
        "a": replace(Kernels(), finish=failing),
        "b": replace(Kernels(), softmax=wrong_gradient),
        "c": replace(Kernels(), project=frozen_positions),
        "d": Kernels(compiled=True),
        "e": replace(Kernels(), finish=failing),
    }
    before = objective.kernels
    chosen = first_that_agrees(objective, candidates, made_up_batch(objective, 256, 50))
    assert chosen.compiled
    assert [note.split(" not used: ")[0] for note in chosen.notes] == ["a", "b", "c"]
    assert "RuntimeError: triton says no" in chosen.notes[0]
    assert "cosine" in chosen.notes[1]
    assert objective.kernels is before
    assert all(weight.grad is None for weight in objective.parameters())


def test_where_none_agrees_plain_kernels_train_and_say_that_they_are_slow(objective):
    chosen = first_that_agrees(objective, {"a": replace(Kernels(), merge=failing)}, made_up_batch(objective, 128, 50))
    assert chosen.merge is Kernels().merge
    assert "several times slower" in chosen.notes[-1]
