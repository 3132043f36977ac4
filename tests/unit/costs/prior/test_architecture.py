from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breakeven.costs.prior.architecture import GroupedHeads, LatentHeads, target_shape
from breakeven.errors import CheckpointError, UsageError

KIMI = Path(__file__).parents[4] / "examples" / "kimi-k2.5-blackwell" / "target"
LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def shape_of(tmp_path: Path, config: dict[str, Any], beside: dict[str, Any] | None = None):  # type: ignore[no-untyped-def]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if beside is not None:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    return target_shape(tmp_path)


def test_the_example_target_has_experts_in_four_bits_and_the_rest_in_sixteen() -> None:
    shape = target_shape(KIMI)
    assert shape.experts is not None
    assert (shape.experts.num, shape.experts.top_k, shape.experts.num_layers, shape.num_dense_layers) == (384, 8, 60, 1)
    assert isinstance(shape.attention, LatentHeads)
    assert shape.precisions.experts == "int4_wo"
    assert {shape.precisions.attention, shape.precisions.dense, shape.precisions.shared} == {"bfloat16"}


def test_a_dense_target(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, LLAMA)
    assert shape.attention == GroupedHeads(heads=32, kv_heads=8, head_dim=128)
    assert shape.experts is None


@pytest.mark.parametrize(
    ("quantization", "attention", "experts"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", "fp8_block"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, "bfloat16", "w4a16_mxfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4_wo", "int4_wo"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"]}, "bfloat16", "nvfp4"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, None, None),
    ],
)
def test_precisions(tmp_path: Path, quantization: dict[str, Any], attention: str | None, experts: str | None) -> None:
    config = {
        **LLAMA,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 512,
        "quantization_config": quantization,
    }
    if attention is None:
        with pytest.raises(UsageError, match="not in the kernel tables"):
            shape_of(tmp_path, config)
        return
    precisions = shape_of(tmp_path, config).precisions
    assert (precisions.attention, precisions.experts) == (attention, experts)


def test_quantization_told_beside_the_configuration(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, LLAMA, {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})
    assert shape.precisions.dense == "fp8"


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:" + "a" * 500, "re:[", "re:.*.*.*.*.*x", "*" * 50])
def test_hostile_patterns_match_nothing_and_take_no_time(tmp_path: Path, pattern: str) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4, "ignore": [pattern, 7, None]}}
    assert shape_of(tmp_path, config).precisions.attention == "int4_wo"


@pytest.mark.parametrize(
    "extra",
    [
        {"index_topk": 2048},
        {"linear_num_value_heads": 32},
        {"layer_types": ["full_attention", "mamba"]},
        {"compress_ratios": [4]},
        {"mamba_d_state": 16},  # Jamba, Falcon-H1: attention heads beside, so nothing else would tell
        {"state_size": 16, "num_attention_heads": None},  # Mamba
        {"attn_type_list": [0, 1]},
    ],
)
def test_layers_that_are_not_priced_are_refused(tmp_path: Path, extra: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="does not price"):
        shape_of(tmp_path, {**LLAMA, **extra})


@pytest.mark.parametrize(
    "broken", [{"hidden_size": -1}, {"num_hidden_layers": "32"}, {"vocab_size": None}, {"num_attention_heads": True}]
)
def test_impossible_sizes_are_refused(tmp_path: Path, broken: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="positive whole number"):
        shape_of(tmp_path, {**LLAMA, **broken})


def test_every_other_layer_with_experts(tmp_path: Path) -> None:
    config = {**LLAMA, "num_experts": 16, "num_experts_per_tok": 2, "decoder_sparse_step": 2, "mlp_only_layers": [1]}
    experts = shape_of(tmp_path, config).experts
    assert experts is not None
    assert experts.num_layers == 15
