"""Heads for targets of any architecture: the target's sizes, but for what the plan names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breakeven.checkpoints.folder import ModelFolder
from breakeven.drafter.training.head_shape import head_config
from breakeven.drafter.training.plan_schema import HeadPlan
from breakeven.errors import CheckpointError, PlanError

DENSE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "attention_bias": True,
    "hidden_act": "gelu",
}
LATENT = DENSE | {
    "kv_lora_rank": 512,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": None,
    "num_hidden_layers": 61,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def config(target: dict[str, Any], **plan: Any):
    return head_config(ModelFolder(path=Path("target"), config=target, tensors={}), HeadPlan(**plan))


def test_the_targets_own_sizes_are_taken():
    found = config(DENSE)
    shape = found.shape
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.num_layers) == (32, 8, 128, 1)
    assert (shape.rope_theta, shape.rms_norm_eps, shape.intermediate_size) == (1e6, 1e-6, 12288)
    assert (found.draft_vocab_size, found.auxiliary_layers) == (32768, (2, 18, 33))


def test_a_multimodal_target_keeps_them_one_level_down():
    nested = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": DENSE}
    assert config(nested) == config(DENSE)


def test_latent_attention_gets_a_head_with_full_heads():
    shape = config(LATENT).shape
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (64, 64, 128)
    fewer = config(LATENT, num_heads=16).shape
    assert (fewer.num_heads, fewer.num_kv_heads) == (16, 16)


@pytest.mark.parametrize(
    ("plan", "theta", "scaling"),
    [
        ({}, 1e6, YARN),
        ({"rope_theta": 5e4}, 5e4, YARN),
        ({"rope_scaling": {}}, 1e6, {}),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 1e6, {"rope_type": "linear", "factor": 2.0}),
    ],
)
@pytest.mark.parametrize("spelling", ["old", "new"])
def test_rope_is_the_targets_unless_the_plan_says_otherwise(plan, theta, scaling, spelling):
    target = dict(DENSE)
    if spelling == "new":
        del target["rope_theta"]
        target["rope_parameters"] = YARN | {"rope_theta": 1e6}
    else:
        target["rope_scaling"] = YARN
    shape = config(target, **plan).shape
    assert shape.rope_theta == theta
    assert {key: value for key, value in shape.rope_scaling.items() if key != "rope_theta"} == scaling


@pytest.mark.parametrize(
    ("target", "plan", "message"),
    [
        (DENSE, {"draft_vocab_size": 200_000}, "vocabulary has 151936"),
        (DENSE, {"auxiliary_layers": (2, 2, 9)}, "three different layers"),
        (DENSE, {"auxiliary_layers": (2, 9, 36)}, "0 to 35"),
        (DENSE | {"num_hidden_layers": 2}, {}, "at least 4"),
        (DENSE, {"num_heads": 30}, "multiple of the key/value heads"),
        (DENSE | {"hidden_size": None}, {}, "hidden_size"),
        (DENSE, {"rope_scaling": {"rope_type": "yarn"}}, "factor"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(target, plan, message):
    with pytest.raises((PlanError, CheckpointError), match=message):
        config(target, **plan)
