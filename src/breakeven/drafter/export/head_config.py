"""`config.json` of an exported head, and what an engine cannot express of it.

Where the engines look (read in vLLM 0.33.0 and SGLang 0.5.23):

* auxiliary layers: vLLM reads the key at top level as layer inputs; SGLang the one inside `eagle_config`, as layer outputs for
  Llama and Qwen targets. For DeepSeek and Kimi targets SGLang adds one always up to 0.5.12.post1, and from 0.5.13 only where the
  first id is 1: lists that begin with 1 are layer outputs in every release, others are not;
* RoPE: transformers 5 writes `rope_parameters`, older readers take `rope_theta` and `rope_scaling`: both are written;
* SGLang always replaces the head's embedding by the target's, and knows no `norm_before_residual`;
* a draft whose `max_position_embeddings` is below the target's context is refused by SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from breakeven.checkpoints.folder import ModelFolder
from breakeven.drafter.model.eagle3 import IDS_KEY, Eagle3Config, Eagle3Weights
from breakeven.errors import CheckpointError

__all__ = ["Engines", "doubts_of", "head_config", "refuse_inexpressible"]

Engines = Literal["vllm", "sglang", "both"]
# Targets for which SGLang's reading of the ids depends on its release.
LATENT_TARGETS = ("deepseek", "kimi")


def head_config(config: Eagle3Config, target: ModelFolder, engines: Engines, dtype: torch.dtype) -> dict[str, Any]:
    """The whole of `config.json`."""
    shape = config.shape
    text = target.config.get("text_config")
    theirs: Mapping[str, Any] = text if isinstance(text, dict) else target.config
    scaling = {key: value for key, value in shape.rope_scaling.items() if key not in ("type", "rope_theta")}
    kind = shape.rope_scaling.get("rope_type") or shape.rope_scaling.get("type") or "default"
    scaled = {**scaling, "rope_type": kind} if kind != "default" else None
    dtype_name = str(dtype).removeprefix("torch.")
    written: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "target_hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "max_position_embeddings": max(shape.max_positions, _context(theirs)),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.norm_before_fc,
        "fc_norm": config.fc_norm,
        "norm_output": config.norm_output,
        "rope_theta": shape.rope_theta,
        "rope_scaling": scaled,
        "rope_parameters": {**(scaled or {"rope_type": "default"}), "rope_theta": shape.rope_theta},
        "dtype": dtype_name,
        "torch_dtype": dtype_name,
        "bos_token_id": theirs.get("bos_token_id"),
        "eos_token_id": theirs.get("eos_token_id"),
    }
    layers = list(config.auxiliary_layers)
    if engines != "sglang":
        written[IDS_KEY] = layers
    if engines != "vllm":
        written["eagle_config"] = {IDS_KEY: [layer - 1 for layer in layers], "use_aux_hidden_state": True}
    return written


def refuse_inexpressible(config: Eagle3Config, weights: Eagle3Weights, engines: Engines) -> None:
    """Refuse a head that the engine asked for would serve as another function.

    Raises:
        CheckpointError: names what cannot be expressed, and what can be done.
    """
    low, middle, high = config.auxiliary_layers
    if not low < middle < high:
        raise CheckpointError(
            f"auxiliary layers {list(config.auxiliary_layers)} are not in ascending order: engines hand the states over in "
            "layer order, whatever order the list has, so fc would get them swapped; sort the ids and the blocks of "
            "fc.weight together"
        )
    if low < 1 and engines != "vllm":
        raise CheckpointError(
            f"auxiliary layer {low} is the embedding, which layer outputs cannot name: SGLang cannot serve it; export it for vllm "
            "only"
        )
    if config.norm_before_residual and engines != "vllm":
        raise CheckpointError(
            "norm_before_residual is true (as it is in speculators' layout where absent): the residual starts from the normed "
            "state, which SGLang implements in no release: "
            "it would serve another function. Export it for vllm only, or train again with norm_before_residual false"
        )
    if weights.embed is not None and engines != "vllm":
        raise CheckpointError(
            "the head has an embedding of its own that differs from the target's, and SGLang always uses the target's: it "
            "would serve another function. Export it for vllm only, or train with the target's embedding"
        )


def doubts_of(config: Eagle3Config, target: ModelFolder, engines: Engines) -> tuple[str, ...]:
    """What holds for some releases of an engine only, or was not checked."""
    doubts = []
    if config.fc_norm or config.norm_output:
        doubts.append("fc_norm and norm_output (EAGLE-3.1) need vLLM 0.22.1 or SGLang 0.5.12.post1 or later; older ones drop them")
    if config.norm_before_fc:
        doubts.append("norm_before_fc needs vLLM 0.20.2 or SGLang 0.5.18 or later, and a head in Llama's form; older ones drop it")
    kind = str(target.config.get("model_type", "")).lower()
    if engines != "vllm" and any(family in kind for family in LATENT_TARGETS) and config.auxiliary_layers[0] != 2:
        doubts.append(
            f"SGLang reads layer ids of {kind} targets that do not begin with 1 as outputs up to 0.5.12.post1 and as inputs "
            f"from 0.5.13: those written, {[layer - 1 for layer in config.auxiliary_layers]}, are outputs"
        )
    if (config.shape.rope_scaling.get("rope_type") or config.shape.rope_scaling.get("type")) == "yarn" and engines != "sglang":
        doubts.append("vLLM lowers its context to that of a YaRN draft; check max_model_len in its log")
    return tuple(doubts)


def _context(config: Mapping[str, Any]) -> int:
    value = config.get("max_position_embeddings")
    return value if type(value) is int else 0
