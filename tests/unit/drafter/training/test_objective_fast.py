"""The fast objective against the plain one: loss, gradients, accuracy, for any lengths and masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breakeven.drafter.training.batch import training_batch
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.objective_plain import plain_loss, training_time_test
from breakeven.drafter.training.rows import known_tokens

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def run_fast(module, target_head, packed, step_weights, *, num_rows):
    known = known_tokens(module.target_ids.numpy(), module.config.shape.vocab_size)
    batch = training_batch(packed, num_rows, known, len(step_weights))
    objective = FastObjective(module, target_head, len(step_weights), torch.float32, Kernels())
    scales = torch.tensor(step_weights) / torch.from_numpy(np.maximum(batch.judged.num_trained, 1))
    return objective(batch, scales), batch


def gradients(module, loss):
    module.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in module.named_parameters()}


def assert_same(module, target_head, packed, step_weights, *, num_rows):
    (loss, _, num_correct, num_joint), batch = run_fast(module, target_head, packed, step_weights, num_rows=num_rows)
    if loss.requires_grad and len(batch.judged.rows):
        mine = gradients(module, loss)
        plain = plain_loss(packed, step_weights, module.config, module.weights(), module.embed, target_head)
        theirs = gradients(module, plain)
        torch.testing.assert_close(loss, plain, rtol=1e-4, atol=1e-5)
        for name, gradient in theirs.items():
            size = float(gradient.abs().max())
            torch.testing.assert_close(
                mine[name], gradient, rtol=1e-4, atol=1e-4 * max(size, 1e-3), msg=lambda m, n=name: f"{n}: {m}"
            )
    else:
        assert loss.item() == 0.0
    documents = [
        training_time_test(
            packed.token_ids[start:end],
            packed.loss_mask[start:end],
            packed.auxiliary[start:end],
            packed.last[start:end],
            len(step_weights),
            module.config,
            module.to_weights(),
            module.embed,
            target_head,
        )
        for start, end in zip(packed.starts[:-1].tolist(), packed.starts[1:].tolist(), strict=True)
    ]
    for index in range(len(step_weights)):
        at_step = [steps[index] for steps in documents if len(steps) > index]
        assert int(num_correct[index]) == sum(int(step.correct.sum()) for step in at_step)
        assert batch.judged.num_trained[index] == sum(int(step.trained.sum()) for step in at_step)
        assert batch.judged.num_counted[index] == sum(int(step.counted.sum()) for step in at_step)
        joint, chains = 0, 0
        for steps in documents:
            if len(steps) > index:
                rows = len(steps[index].loss)
                joint += int(torch.stack([step.correct[:rows] for step in steps[: index + 1]]).all(0).sum())
                chains += int(torch.stack([step.counted[:rows] for step in steps[: index + 1]]).all(0).sum())
        assert (int(num_joint[index]), int(batch.judged.num_chains[index])) == (joint, chains)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_output": True},
        {"fc_norm": True},
        {"fc_norm": True, "norm_output": True, "num_kv_heads": 4},
        {"num_kv_heads": 1, "head_dim": 16},
        {"num_heads": 3, "num_kv_heads": 1, "rope_scaling": YARN},
        {"rope_scaling": LLAMA3, "rope_theta": 5e5},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ],
)
def test_equal_to_the_plain_objective(make_module, make_packed, options):
    module, target_head = make_module(**options)
    assert_same(module, target_head, make_packed([13, 30, 5, 21]), [0.8**k for k in range(5)], num_rows=80)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    data=st.data(),
    num_steps=st.integers(1, 7),
    padding=st.integers(0, 9),
)
def test_equal_for_any_lengths_and_masks(make_module, make_packed, lengths, data, num_steps, padding):
    mask = data.draw(st.lists(st.booleans(), min_size=sum(lengths), max_size=sum(lengths)))
    module, target_head = make_module()
    packed = make_packed(lengths, mask=mask, seed=data.draw(st.integers(0, 1000)))
    assert_same(module, target_head, packed, [0.8**k for k in range(num_steps)], num_rows=sum(lengths) + padding)


def test_neighbours_in_the_pack_do_not_matter(make_module, make_packed):
    module, target_head = make_module()
    packed = make_packed([12, 9])
    (alone, *_), _ = run_fast(module, target_head, packed, [1.0, 0.8], num_rows=21)
    with torch.no_grad():
        packed.auxiliary[12:] = 1e3
        packed.last[12:] = -5.0
    mask = packed.loss_mask.clone()
    mask[12:] = False
    changed = type(packed)(**{name: getattr(packed, name) for name in type(packed).__slots__} | {"loss_mask": mask})
    (first, *_), batch = run_fast(module, target_head, changed, [1.0, 0.8], num_rows=40)
    whole = plain_loss(make_first_only(packed, 12), (1.0, 0.8), module.config, module.to_weights(), module.embed, target_head)
    torch.testing.assert_close(first, whole, rtol=1e-4, atol=1e-5)
    assert batch.judged.rows.max() < 12
    assert alone.item() != pytest.approx(first.item())


def make_first_only(packed, length):
    fields = {name: getattr(packed, name)[:length] for name in type(packed).__slots__ if name != "starts"}
    return type(packed)(**fields, starts=torch.tensor([0, length]))


def test_a_batch_without_judged_rows_has_no_loss_and_no_gradient(make_module, make_packed):
    module, target_head = make_module()
    packed = make_packed([6, 4], mask=[False] * 10)
    (loss, sums, num_correct, _), _ = run_fast(module, target_head, packed, [1.0, 0.8], num_rows=16)
    assert loss.item() == 0.0
    assert sums.tolist() == [0.0, 0.0]
    assert num_correct.tolist() == [0, 0]
    assert all(float(gradient.abs().max()) == 0.0 for gradient in gradients(module, loss).values())
