from __future__ import annotations

import pytest
import torch

from breakeven.drafter.reference.eagle3 import combine
from breakeven.drafter.training.module import Eagle3Module, power_of_two_scales


def fresh(module: Eagle3Module) -> Eagle3Module:
    return Eagle3Module(module.config, module.target_ids, module.embed, module.scales.tolist())


def assert_same_weights(mine: Eagle3Module, theirs: Eagle3Module) -> None:
    for (name, weight), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(weight, other, msg=name)


@pytest.mark.parametrize("options", [{}, {"fc_norm": True}])
@pytest.mark.parametrize("prefix", ["midlayer", "layers.0"])
def test_a_checkpoint_restores_the_weights(make_module, options, prefix):
    module, _ = make_module(**options)
    other = fresh(module)
    other.restore(module.checkpoint_tensors(prefix), prefix)
    assert_same_weights(other, module)


@pytest.mark.parametrize("options", [{}, {"fc_norm": True}])
def test_training_goes_on_from_weights_that_draft(make_module, options):
    module, _ = make_module(**options)
    other = fresh(module)
    other.start_from(module.to_weights())
    assert_same_weights(other, module)


def test_scales_are_folded_into_fc(make_module):
    module, _ = make_module(scales=(0.5, 0.25, 0.0625))
    auxiliary = torch.randn(5, 72)
    scaled = auxiliary.unflatten(-1, (3, -1)) * module.scales[:, None]
    torch.testing.assert_close(
        combine(auxiliary, module.config, module.to_weights()), scaled.flatten(1) @ module.fc.T, rtol=1e-5, atol=1e-5
    )


def test_offsets_and_mask_name_the_draft_vocabulary(make_module):
    module, _ = make_module()
    tensors = module.checkpoint_tensors()
    assert tensors["d2t"].dtype == torch.int64
    assert torch.equal(tensors["d2t"] + torch.arange(32), module.target_ids)
    assert tensors["t2d"].nonzero().flatten().tolist() == module.target_ids.tolist()


def test_the_start_passes_the_last_state_through_and_speaks_as_the_target(make_module):
    module, target_head = make_module(scales=(1.0, 1.0, 0.5))
    module.initialise(target_head, 0)
    auxiliary = torch.randn(4, 72)
    torch.testing.assert_close(combine(auxiliary, module.config, module.to_weights()), 0.5 * auxiliary[:, 48:])
    assert torch.equal(module.head, target_head)
    other, _ = make_module(scales=(1.0, 1.0, 0.5))
    other.initialise(target_head, 0)
    assert_same_weights(other, module)
    other.initialise(target_head, 1)
    assert not torch.equal(other.query, module.query)


def test_scales_bring_states_near_one_whatever_the_first_position_holds():
    # sizes in the middle between the powers at which the rounding turns
    auxiliary = torch.randn(100, 3, 16, generator=torch.Generator().manual_seed(0)) * torch.tensor([4.0, 8.0, 32.0])[:, None]
    auxiliary[0] = 1045.0
    assert power_of_two_scales(auxiliary.flatten(1), torch.ones(100, dtype=torch.bool)) == (2**-2, 2**-3, 2**-5)


def test_a_state_of_zeros_is_left_alone():
    assert power_of_two_scales(torch.zeros(4, 6), torch.ones(4, dtype=torch.bool)) == (1.0, 1.0, 1.0)
