from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from breakeven.drafter.model.eagle3 import default_auxiliary_layers
from breakeven.errors import CheckpointError


@pytest.fixture
def target(make_target, load_target):
    return load_target(make_target())[0]


@pytest.mark.parametrize("spelling", ["midlayer", "layers.0"])
def test_both_spellings_of_the_layer_are_read(make_head, load_head, target, spelling):
    folder = make_head(spelling=spelling)
    stored = load_file(folder / "model.safetensors")
    _, weights = load_head(folder, target)
    torch.testing.assert_close(weights.hidden_norm, stored[f"{spelling}.hidden_norm.weight"])
    torch.testing.assert_close(weights.qkv[:32], stored[f"{spelling}.self_attn.q_proj.weight"])
    assert weights.embed is None


def test_an_embedding_of_its_own_is_read(make_head, load_head, target):
    _, weights = load_head(make_head(own_embedding=True), target)
    assert weights.embed is not None
    assert weights.embed.shape == (97, 32)


def test_offsets_become_target_ids(make_head, load_head, target):
    _, weights = load_head(make_head(), target)
    assert weights.target_ids.tolist() == list(range(0, 96, 3))


@pytest.mark.parametrize(
    ("overrides", "layers", "source"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, (1, 2, 3), "layer inputs"),
        (
            {"eagle_aux_hidden_state_layer_ids": None, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}},
            (1, 2, 3),
            "one is added",
        ),
        ({"eagle_aux_hidden_state_layer_ids": None}, (2, 2, 1), "default"),
    ],
)
def test_auxiliary_layers_follow_the_convention_of_their_key(make_head, load_head, target, overrides, layers, source):
    config, _ = load_head(make_head(**overrides), target)
    assert config.auxiliary_layers == layers
    assert source in config.auxiliary_source


def test_default_auxiliary_layers_are_the_engines():
    assert default_auxiliary_layers(30) == (2, 15, 27)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "EAGLE-3"),
        ({"norm_before_residual": "yes"}, "norm_before_residual is 'yes'"),
        ({"eagle_config": {"norm_before_fc": True}}, "input_norm.weight"),
        ({"attention_bias": True}, "attention_bias"),
        ({"fc_norm": "yes"}, "fc_norm is 'yes'"),
        ({"num_hidden_layers": 2}, "num_hidden_layers"),
        ({"hidden_size": 16}, "hidden_size is 16"),
        ({"vocab_size": 96}, "vocab_size is 96"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "three"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "layers 0 to 3"),
        ({"draft_vocab_size": "many"}, "draft_vocab_size"),
        ({"eagle_config": [1]}, "eagle_config"),
    ],
)
def test_a_head_of_another_function_or_target_is_refused(make_head, load_head, target, overrides, message):
    folder = make_head()
    config = json.loads((folder / "config.json").read_text()) | overrides
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        load_head(folder, target)


def test_absolute_ids_in_d2t_are_noticed(make_head, load_head, target):
    folder = make_head(extra={"d2t": torch.arange(32) * 3})
    with pytest.raises(CheckpointError, match="d2t gives target ids"):
        load_head(folder, target)


def test_fractions_in_d2t_are_refused(make_head, load_head, target):
    with pytest.raises(CheckpointError, match="d2t is F32"):
        load_head(make_head(extra={"d2t": torch.arange(32) * 2.0}), target)


def test_a_pruned_head_needs_its_map(make_head, load_head, target):
    with pytest.raises(CheckpointError, match="no d2t"):
        load_head(make_head(drop=("d2t",)), target)


def test_a_full_vocabulary_needs_no_map(make_head, load_head, target):
    _, weights = load_head(make_head(draft_vocab_size=97, drop=("d2t", "t2d")), target)
    assert weights.target_ids.tolist() == list(range(97))


def test_tensors_without_a_place_are_refused_not_dropped(make_head, load_head, target):
    with pytest.raises(CheckpointError, match="surprise"):
        load_head(make_head(extra={"surprise.weight": torch.ones(3)}), target)


def test_a_missing_tensor_is_named(make_head, load_head, target):
    with pytest.raises(CheckpointError, match=r"fc\.weight"):
        load_head(make_head(drop=("fc.weight",)), target)


def test_norms_of_eagle_3_1_are_read(make_head, load_head, target):
    folder = make_head(fc_norm=True, norm_output=True)
    config, weights = load_head(folder, target)
    assert (config.fc_norm, config.norm_output) == (True, True)
    assert weights.fc_norm is not None
    torch.testing.assert_close(weights.fc_norm[2], load_file(folder / "model.safetensors")["fc_norm.2.weight"])


def test_norms_that_the_config_does_not_announce_are_refused(make_head, load_head, target):
    with pytest.raises(CheckpointError, match=r"fc_norm\.0"):
        load_head(make_head(extra={"fc_norm.0.weight": torch.ones(32)}), target)


def test_norms_of_speculators_are_read_where_vllm_looks(make_head, load_head, target):
    config, weights = load_head(make_head(norm_before_fc=True, norm_before_residual=True), target)
    assert (config.norm_before_fc, config.norm_before_residual) == (True, True)
    assert weights.input_norm.shape == (96,)
    inside = make_head("inside", norm_before_fc=True, eagle_config={"norm_before_fc": False})
    with pytest.raises(CheckpointError, match=r"no place for: 'input_norm\.weight'"):
        load_head(inside, target)
    assert load_head(make_head("plain"), target)[1].input_norm is None
