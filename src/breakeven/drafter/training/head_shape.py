"""The head that a plan asks for: the target's own sizes, but for what the plan names."""

from __future__ import annotations

from typing import Any

from breakeven.checkpoints.folder import ModelFolder
from breakeven.checkpoints.random_head import auxiliary_layers, default_draft_vocab_size
from breakeven.drafter.model.eagle3 import Eagle3Config
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.training.plan_schema import HeadPlan
from breakeven.errors import PlanError

__all__ = ["head_config"]

# Latent attention has no head_dim of its own; public Llama-style heads for such targets are this wide.
LATENT_HEAD_DIM = 128


def head_config(target: ModelFolder, plan: HeadPlan) -> Eagle3Config:
    """Shape, draft vocabulary's size and auxiliary layers of a new head for `target`, of any architecture.

    Raises:
        CheckpointError: the target's configuration lacks a size, or the sizes do not fit each other.
        PlanError: layers or a vocabulary that the target does not have.
    """
    text = target.config.get("text_config")
    theirs: dict[str, Any] = {**target.config, **(text if isinstance(text, dict) else {})}
    latent = theirs.get("kv_lora_rank") is not None
    given: dict[str, Any] = {
        "intermediate_size": plan.intermediate_size,
        "num_attention_heads": plan.num_heads,
        "num_key_value_heads": plan.num_kv_heads if plan.num_kv_heads is not None or not latent else plan.num_heads,
        "head_dim": plan.head_dim if plan.head_dim is not None or not latent else LATENT_HEAD_DIM,
        "rope_theta": plan.rope_theta,
    }
    config = {**theirs, **{key: value for key, value in given.items() if value is not None}}
    if latent and plan.num_kv_heads is None:
        config["num_key_value_heads"] = config.get("num_attention_heads")
    if plan.rope_theta is not None or plan.rope_scaling is not None:
        base = theirs.get("rope_parameters") or theirs.get("rope_scaling") or {}
        scaling = dict(plan.rope_scaling) if plan.rope_scaling is not None else dict(base)
        theta = plan.rope_theta or base.get("rope_theta") or theirs.get("rope_theta")
        config["rope_scaling"] = {}
        config["rope_parameters"] = {**scaling, **({"rope_theta": theta} if theta is not None else {})}
    # whatever the target is, the head is one Llama layer without biases
    config |= {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
    layers = theirs.get("num_hidden_layers")
    config["num_hidden_layers"] = 1
    shape = LlamaConfig.from_folder(ModelFolder(path=target.path, config=config, tensors=target.tensors))
    draft_vocab_size = plan.draft_vocab_size or default_draft_vocab_size(shape.vocab_size)
    if draft_vocab_size > shape.vocab_size:
        raise PlanError(f"head.draft_vocab_size is {draft_vocab_size}; the target's vocabulary has {shape.vocab_size}")
    if not isinstance(layers, int) or layers < 4:
        raise PlanError(f"{target.path}: num_hidden_layers is {layers!r}; a head reads three distinct layers: expected at least 4")
    chosen = plan.auxiliary_layers or auxiliary_layers(layers)
    if list(chosen) != sorted(set(chosen)) or chosen[0] < 0 or chosen[2] >= layers:
        raise PlanError(
            f"head.auxiliary_layers is {list(chosen)}; expected three different layers of 0 to {layers - 1}, low to high"
        )
    return Eagle3Config(
        shape=shape,
        draft_vocab_size=draft_vocab_size,
        auxiliary_layers=chosen,
        auxiliary_source="plan" if plan.auxiliary_layers else "default",
        fc_norm=plan.fc_norm,
        norm_output=plan.norm_output,
    )
