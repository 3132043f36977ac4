from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.errors import CheckpointError


def test_fused_weights_hold_the_stored_rows(make_target, load_target):
    folder = make_target()
    stored = load_file(folder / "model.safetensors")
    _, weights = load_target(folder)
    layer = weights.layers[1]
    attention = "model.layers.1.self_attn."
    torch.testing.assert_close(layer.qkv, torch.cat([stored[f"{attention}{name}_proj.weight"] for name in "qkv"]))
    torch.testing.assert_close(layer.gate_up[48:], stored["model.layers.1.mlp.up_proj.weight"])
    assert weights.head is weights.embed


def test_an_untied_head_is_read(make_target, load_target):
    folder = make_target(tie_word_embeddings=False)
    _, weights = load_target(folder)
    torch.testing.assert_close(weights.head, load_file(folder / "model.safetensors")["lm_head.weight"])


def test_a_sharded_folder_reads_like_a_single_file(make_target, load_target):
    folder = make_target()
    _, single = load_target(folder)
    stored = load_file(folder / "model.safetensors")
    names = sorted(stored)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name: stored[name] for name in members}, folder / file)
    (folder / "model.safetensors").unlink()
    weight_map = {name: file for file, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    _, sharded = load_target(folder)
    torch.testing.assert_close(sharded.layers[3].qkv, single.layers[3].qkv)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_theta": 0}, "rope_theta is 0"),
        ({"rope_theta": 10**400}, "rope_theta is 1000"),
        ({"rope_theta": float("inf")}, "rope_theta is inf"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": 3}, "num_key_value_heads"),
        ({"head_dim": 7}, "head_dim"),
        ({"head_dim": 100_000_000}, "an even head_dim up to 16384"),
        ({"rope_scaling": "yes"}, "rope_scaling"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(make_target, overrides, message):
    folder = make_target()
    config = json.loads((folder / "config.json").read_text()) | overrides
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        LlamaConfig.from_folder(open_folder(folder))


def test_an_unknown_rope_type_is_refused_before_weights_are_read(make_target):
    folder = make_target(rope_scaling={"rope_type": "dynamic", "factor": 4.0})
    with pytest.raises(CheckpointError, match="dynamic"):
        LlamaConfig.from_folder(open_folder(folder))


def test_missing_and_misshapen_tensors_are_named(make_target):
    folder = make_target()
    stored = load_file(folder / "model.safetensors")
    lacking = {name: tensor for name, tensor in stored.items() if "layers.2.mlp.up_proj" not in name}
    save_file(lacking, folder / "model.safetensors")
    opened = open_folder(folder)
    with pytest.raises(CheckpointError, match=r"model\.layers\.2\.mlp\.up_proj\.weight"):
        LlamaWeights.from_folder(opened, LlamaConfig.from_folder(opened), torch.float32)
    stored["model.norm.weight"] = torch.ones(33)
    save_file(stored, folder / "model.safetensors")
    opened = open_folder(folder)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has shape \[33\].*\[32\]"):
        LlamaWeights.from_folder(opened, LlamaConfig.from_folder(opened), torch.float32)


def test_whole_numbers_are_no_weights(make_target):
    folder = make_target()
    stored = load_file(folder / "model.safetensors")
    stored["model.norm.weight"] = stored["model.norm.weight"].to(torch.int32)
    save_file(stored, folder / "model.safetensors")
    opened = open_folder(folder)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is I32"):
        LlamaWeights.from_folder(opened, LlamaConfig.from_folder(opened), torch.float32)


def test_end_of_sequence_ids_come_from_both_configs(make_target):
    folder = make_target()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]}))
    assert LlamaConfig.from_folder(open_folder(folder)).eos_token_ids == {2, 5}


def test_rope_parameters_of_either_transformers_spelling(make_target):
    old = LlamaConfig.from_folder(open_folder(make_target("old", rope_theta=5e4)))
    new = LlamaConfig.from_folder(
        open_folder(make_target("new", rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e4}))
    )
    assert old.rope_theta == new.rope_theta == 5e4


@pytest.mark.parametrize("missing", ["factor", "original_max_position_embeddings"])
def test_yarn_without_its_figures_is_refused(make_target, missing):
    rope = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
    del rope[missing]
    with pytest.raises(CheckpointError, match=missing):
        LlamaConfig.from_folder(open_folder(make_target(rope_scaling=rope)))


def test_a_number_of_layers_that_no_model_has_is_refused_at_once(make_target):
    """The names of the tensors of a billion layers were made, one after another, before one was found missing."""
    folder = make_target()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**9}))
    with pytest.raises(CheckpointError, match="num_hidden_layers is 1000000000; expected a positive whole number of at most 10000"):
        LlamaConfig.from_folder(open_folder(folder))


def test_a_generation_config_out_of_the_folder_is_not_read(make_target, tmp_path):
    folder = make_target()
    (tmp_path / "other.json").write_text('{"eos_token_id": 7}')
    (folder / "generation_config.json").symlink_to(tmp_path / "other.json")
    with pytest.raises(CheckpointError, match="outside"):
        LlamaConfig.from_folder(open_folder(folder))
