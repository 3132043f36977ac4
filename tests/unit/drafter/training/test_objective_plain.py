"""The plain objective against drafting itself: every start, every step."""

from __future__ import annotations

import pytest
import torch

from breakeven.drafter.reference.eagle3 import combine, eagle3_layer
from breakeven.drafter.reference.llama import norm
from breakeven.drafter.training.objective_plain import plain_loss, training_time_test

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize("options", [{}, {"norm_output": True}, {"fc_norm": True}, {"rope_scaling": YARN, "num_kv_heads": 4}])
def test_states_are_those_of_drafting_from_every_start(make_module, make_packed, options):
    module, target_head = make_module(**options)
    config, weights = module.config, module.to_weights(torch.float64)
    packed = make_packed([11])
    auxiliary, last, embed, target_head = (x.double() for x in (packed.auxiliary, packed.last, module.embed, target_head))
    steps = training_time_test(packed.token_ids, packed.loss_mask, auxiliary, last, 4, config, weights, embed, target_head)
    for start in range(9):
        states = combine(auxiliary[: start + 1], config, weights)
        for index, step in enumerate(steps):
            if start + 2 + index >= 11:
                assert start >= len(step.state)
                continue
            following = packed.token_ids[1 : start + 2 + index]
            newest = eagle3_layer(states, embed[following], config, weights)[-1]
            fed_back = norm(newest, weights.norm, config.shape.rms_norm_eps) if config.norm_output else newest
            torch.testing.assert_close(step.state[start], fed_back, rtol=1e-9, atol=1e-9)
            states = torch.cat([states, fed_back[None]])


def test_each_row_is_held_against_what_the_target_says_there(make_module, make_packed):
    module, target_head = make_module()
    weights = module.to_weights()
    packed = make_packed([9])
    steps = training_time_test(
        packed.token_ids, packed.loss_mask, packed.auxiliary, packed.last, 3, module.config, weights, module.embed, target_head
    )
    known = set(module.target_ids.tolist())
    for index, step in enumerate(steps):
        assert len(step.loss) == 9 - 2 - index
        for start in range(len(step.loss)):
            guessed = start + 2 + index
            teacher = (packed.last[guessed - 1] @ target_head.T).softmax(-1)
            logits = norm(step.state[start], weights.norm, 1e-5) @ weights.head.T
            torch.testing.assert_close(step.loss[start], -(teacher * logits.log_softmax(-1)).sum())
            in_vocabulary = int(packed.token_ids[guessed]) in known
            assert bool(step.counted[start]) == bool(packed.loss_mask[guessed])
            assert bool(step.trained[start]) == (bool(packed.loss_mask[guessed]) and in_vocabulary)
            assert bool(step.correct[start]) == (bool(step.trained[start]) and bool(teacher.argmax() == logits.argmax()))


def test_the_loss_is_a_mean_over_trained_rows_of_all_documents(make_module, make_packed):
    module, target_head = make_module()
    weights = module.to_weights()
    packed = make_packed([7, 12])
    losses = [[], []]
    for start, end in ((0, 7), (7, 19)):
        steps = training_time_test(
            packed.token_ids[start:end],
            packed.loss_mask[start:end],
            packed.auxiliary[start:end],
            packed.last[start:end],
            2,
            module.config,
            weights,
            module.embed,
            target_head,
        )
        for index, step in enumerate(steps):
            losses[index] += step.loss[step.trained].tolist()
    expected = sum(weight * sum(part) / len(part) for weight, part in zip((1.0, 0.5), losses, strict=True))
    assert plain_loss(packed, (1.0, 0.5), module.config, weights, module.embed, target_head).item() == pytest.approx(expected)


def test_a_document_too_short_to_be_judged_adds_nothing(make_module, make_packed):
    module, target_head = make_module()
    packed = make_packed([2], mask=[True, True])
    assert plain_loss(packed, (1.0, 0.8), module.config, module.to_weights(), module.embed, target_head).item() == 0.0
