"""What a model's config.json says of its layers, as far as time depends on it. Configurations are data; no weights are needed."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.checkpoints.headers import read_json
from breakeven.errors import CheckpointError, UsageError

__all__ = ["Experts", "GroupedHeads", "LatentHeads", "Precisions", "TargetShape", "target_shape"]

MAX_PATTERN = 200
MAX_WILDCARDS = 3
_HARMLESS = re.compile(r"[\w.\\()|*+$^?:\[\]-]*")

# keys of layers that the kernel tables read here do not have; a model with one of them is refused rather than priced as another
_NOT_MODELLED = {
    "index_topk": "sparse attention with an indexer",
    "compress_ratios": "compressed sparse attention",
    "linear_num_value_heads": "linear attention layers",
    "linear_attn_config": "linear attention layers",
    "mamba_num_heads": "Mamba layers",
    "mamba_d_state": "Mamba layers",
    "state_size": "Mamba layers",
    "layers_block_type": "layers of different kinds",
    "block_types": "layers of different kinds",
    "attn_type_list": "linear attention layers",
    "hybrid_override_pattern": "Mamba layers",
    "block_configs": "layers of different shapes",
    "attn_layer_indices": "layers of different kinds",
    "interleave_moe_layer_step": "dense and expert layers of different widths in turn",
    "num_global_key_value_heads": "global layers with other heads than sliding ones",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedHeads:
    """Attention with `heads` queries on `kv_heads` keys and values of `head_dim`."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentHeads:
    """MLA: queries through rank `q_rank` (None: straight), keys and values through a cached latent of `kv_rank` and `rope_dim`."""

    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`num` routed experts of width `intermediate`, `top_k` a token, in `num_layers` layers; `shared`: width of shared ones."""

    num: int
    top_k: int
    intermediate: int
    shared: int
    num_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Precisions:
    """Of the weights: attention projections, dense MLPs, shared experts and routed experts, as the kernel tables name them."""

    attention: str = "bfloat16"
    dense: str = "bfloat16"
    shared: str = "bfloat16"
    experts: str = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    name: str
    hidden: int
    vocab: int
    num_layers: int
    attention: GroupedHeads | LatentHeads
    dense_intermediate: int
    experts: Experts | None
    precisions: Precisions
    sliding_window: int = 0
    num_sliding: int = 0
    max_positions: int | None = None

    @property
    def num_dense_layers(self) -> int:
        return self.num_layers - (self.experts.num_layers if self.experts is not None else 0)


def target_shape(folder: Path) -> TargetShape:
    """Read `folder`/config.json (and hf_quant_config.json beside it).

    Raises:
        CheckpointError: no configuration, or sizes missing or impossible.
        UsageError: layers of a kind that is not priced here.
    """
    config = read_json(folder / "config.json")
    nested = config.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, dict) else config
    where = f"{folder}/config.json"
    for key, what in _NOT_MODELLED.items():
        if text.get(key):
            raise UsageError(f"{where}: {key} means {what}, which the prior does not price; measure the cost surface instead")
    kinds = text.get("layer_types")
    layer_types = [str(kind) for kind in kinds] if isinstance(kinds, list) else []
    other = sorted(set(layer_types) - {"full_attention", "sliding_attention"})
    if other:
        raise UsageError(f"{where}: layers of kind {', '.join(other)[:80]!a}, which the prior does not price; measure instead")
    hidden, heads, layers, vocab = (
        _size(text, key, where) for key in ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
    )
    sliding = layer_types.count("sliding_attention")
    return TargetShape(
        name=folder.name,
        hidden=hidden,
        vocab=vocab,
        num_layers=layers,
        attention=_attention(text, hidden, heads, where),
        dense_intermediate=_size(text, "intermediate_size", where),
        experts=_experts(text, layers, where),
        precisions=_precisions(folder, config, text),
        sliding_window=_size(text, "sliding_window", where) if sliding else 0,
        num_sliding=sliding,
        max_positions=limit if type(limit := text.get("max_position_embeddings")) is int and limit > 0 else None,
    )


def _size(text: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = text.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 < value < 1 << 24:
        raise CheckpointError(f"{where}: {key} is {value!a}; expected a positive whole number")
    return value


def _attention(text: Mapping[str, Any], hidden: int, heads: int, where: str) -> GroupedHeads | LatentHeads:
    if text.get("kv_lora_rank") is not None:
        return LatentHeads(
            heads=heads,
            q_rank=_size(text, "q_lora_rank", where) if text.get("q_lora_rank") is not None else None,
            kv_rank=_size(text, "kv_lora_rank", where),
            nope_dim=_size(text, "qk_nope_head_dim", where),
            rope_dim=_size(text, "qk_rope_head_dim", where),
            v_dim=_size(text, "v_head_dim", where),
        )
    return GroupedHeads(
        heads=heads,
        kv_heads=_size(text, "num_key_value_heads", where, heads),
        head_dim=_size(text, "head_dim", where, max(hidden // heads, 1)),
    )


def _experts(text: Mapping[str, Any], layers: int, where: str) -> Experts | None:
    names = ("n_routed_experts", "num_experts", "num_local_experts")
    key = next((name for name in names if text.get(name) is not None), None)
    if key is None or text.get(key) in {0, 1}:
        return None
    num = _size(text, key, where)
    top_k = _size(text, "num_experts_per_tok", where)
    if top_k > num:
        raise CheckpointError(f"{where}: {top_k} experts a token of {num}")
    width = _size(text, "moe_intermediate_size", where, _size(text, "intermediate_size", where))
    shared = text.get("shared_expert_intermediate_size")
    if not shared:
        shared = width * _size(text, "n_shared_experts", where) if text.get("n_shared_experts") else 0
    return Experts(num=num, top_k=top_k, intermediate=width, shared=int(shared), num_layers=_num_expert_layers(text, layers, where))


def _num_expert_layers(text: Mapping[str, Any], layers: int, where: str) -> int:
    """DeepSeek counts every `moe_layer_freq`-th layer from `first_k_dense_replace`, Qwen every `decoder_sparse_step`-th."""
    first, every = text.get("first_k_dense_replace") or 0, text.get("moe_layer_freq") or 1
    step, dense_only = text.get("decoder_sparse_step") or 1, text.get("mlp_only_layers") or []
    if any(type(count) is not int or count < 0 for count in (first, every, step)) or not isinstance(dense_only, list):
        raise CheckpointError(
            f"{where}: first_k_dense_replace, moe_layer_freq or decoder_sparse_step do not say which layers hold experts"
        )
    return sum(1 for layer in range(first, layers) if layer % every == 0 and (layer + 1) % step == 0 and layer not in dense_only)


def _precisions(folder: Path, config: Mapping[str, Any], text: Mapping[str, Any]) -> Precisions:
    found = text.get("quantization_config") or config.get("quantization_config")
    ignored: Sequence[Any] = ()
    kind = None
    if isinstance(found, dict):
        kind = _kind(found)
        ignored = found.get("ignore") or found.get("modules_to_not_convert") or ()
    elif (folder / "hf_quant_config.json").is_file():
        given = read_json(folder / "hf_quant_config.json").get("quantization")
        if isinstance(given, dict):
            kind = _kind({"quant_method": "modelopt", **given})
            ignored = given.get("exclude_modules") or ()
    if kind is None:
        return Precisions()

    def of(*names: str) -> str:
        return "bfloat16" if any(_matches(pattern, name) for pattern in ignored for name in names) else kind

    layer = "model.layers.3."
    return Precisions(
        attention=of(layer + "self_attn.o_proj", "language_model." + layer + "self_attn.o_proj"),
        dense=of(layer + "mlp.gate_proj", layer + "mlp.down_proj"),
        shared=of(layer + "mlp.shared_experts.gate_proj", layer + "mlp.shared_expert.gate_proj"),
        experts=of(layer + "mlp.experts.0.gate_proj", layer + "mlp.experts"),
    )


def _kind(found: Mapping[str, Any]) -> str:
    """The name that the kernel tables give to what config.json describes."""
    method = str(found.get("quant_method") or "").lower()
    algorithm = str(found.get("quant_algo") or found.get("format") or "").lower()
    groups = found.get("config_groups")
    first: object = next(iter(groups.values()), {}) if isinstance(groups, dict) and groups else {}
    weights = first.get("weights") if isinstance(first, dict) else None
    described = weights if isinstance(weights, dict) else {}
    bits = described.get("num_bits") or found.get("bits") or found.get("w_bit")
    if "nvfp4" in algorithm or (bits == 4 and described.get("type") == "float"):
        return "nvfp4"
    if "mxfp4" in method or "mxfp4" in algorithm:
        return "w4a16_mxfp4"
    if bits == 4 or method in {"awq", "gptq"}:
        return "int4_wo"
    if method == "fp8" and found.get("weight_block_size"):
        return "fp8_block"
    if "fp8" in method or "fp8" in algorithm or (bits == 8 and described.get("type") == "float"):
        return "fp8"
    raise UsageError(
        f"quantization {method or algorithm or 'of an unknown kind'!a} with {bits!a} bits is not in the kernel tables; "
        "known: bfloat16, fp8, block fp8, nvfp4, mxfp4 experts, 4-bit weight-only"
    )


def _matches(pattern: object, name: str) -> bool:
    """Whether an ignore entry (a module name, the start of one, a glob, or re:...) covers this module. Odd patterns match none."""
    text = str(pattern)
    if len(text) > MAX_PATTERN:
        return False
    if not text.startswith("re:"):
        if "*" in text:
            is_short = text.count("*") <= MAX_WILDCARDS
            return is_short and (fnmatch.fnmatchcase(name, text) or fnmatch.fnmatchcase(name, f"{text}.*"))
        return name == text or name.startswith(text + ".") or f".{text}." in f".{name}."
    expression = text.removeprefix("re:")
    # a stranger's expression is run only where it cannot take long: few wildcards, no repeated groups
    if (
        not _HARMLESS.fullmatch(expression)
        or len(re.findall(r"[*+]", expression)) > MAX_WILDCARDS
        or re.search(r"\)[*+?{]", expression)
    ):
        return False
    try:
        return re.match(expression, name) is not None
    except re.error:
        return False
