"""EAGLE-3 heads as data: the configuration, the weights, and the conventions that differ between trainers.

The graph (EAGLE-3, arXiv 2503.01840, as vLLM and SGLang run it). At position t the drafter sees the target's state g_t and the
token x_(t+1), and predicts x_(t+2)::

    g   = fc(cat(three auxiliary states))               the first time; afterwards its own output
    h   = attention(cat(input_layernorm(embed(x)), hidden_norm(g))) + g
    h   = mlp(post_attention_layernorm(h)) + h          the next step's g: EAGLE-3 feeds back this pre-norm output
    token = lm_head(norm(h)), mapped to the target's vocabulary by adding the offset d2t

EAGLE-3.1 adds two options, here as vLLM and SGLang mean them: `fc_norm` norms each auxiliary state on its own before fc, and
`norm_output` feeds norm(h) back in place of h. Two older options are speculators': `norm_before_fc` norms the three states
together, and `norm_before_residual` starts the residual from the normed g, which SGLang does not know. (SpecForge writes
`norm_output` for heads it trained with the pre-norm state.)

Auxiliary ids name the residual stream **entering** that layer. Two keys are met in the field, in different conventions: top level
(vLLM: layer inputs, taken as they are) and `eagle_config` (SGLang and SpecForge: layer outputs, so one lower).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder
from breakeven.drafter.model.llama import LlamaConfig, read_tensors
from breakeven.errors import CheckpointError

__all__ = ["IDS_KEY", "Eagle3Config", "Eagle3Weights", "TargetSizes", "default_auxiliary_layers"]

# Options that change the function and that this graph does not have: refused, never ignored.
UNSUPPORTED_OPTIONS = (
    "attention_bias",
    "mlp_bias",
    "parallel_drafting",
)
IDS_KEY = "eagle_aux_hidden_state_layer_ids"


def default_auxiliary_layers(num_layers: int) -> tuple[int, int, int]:
    """Low, middle and high: what vLLM and SGLang fall back to, as layer inputs."""
    return 2, num_layers // 2, num_layers - 3


class TargetSizes(Protocol):
    """All that a head needs to know of its target, whatever the target's architecture."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config:
    """`shape` describes the one decoder layer; `auxiliary_layers` are layer inputs, `auxiliary_source` says who named them."""

    shape: LlamaConfig
    draft_vocab_size: int
    auxiliary_layers: tuple[int, int, int]
    auxiliary_source: str
    fc_norm: bool = False
    norm_output: bool = False
    norm_before_fc: bool = False
    norm_before_residual: bool = False

    @classmethod
    def from_folder(cls, folder: ModelFolder, target: TargetSizes) -> Eagle3Config:
        """Read a drafter's `config.json` and hold it against its target.

        Raises:
            CheckpointError: not an EAGLE-3 head, an option this graph lacks, or widths that do not fit the target.
        """
        config = folder.config
        where = f"{folder.path}/config.json"
        given = config.get("architectures") or []
        architectures = [str(name) for name in given] if isinstance(given, list) else []
        if not any("eagle3" in name.lower() for name in architectures):
            raise CheckpointError(f"{where}: architectures is {given!a}; expected an EAGLE-3 head (LlamaForCausalLMEagle3)")
        eagle = config.get("eagle_config") or {}
        if not isinstance(eagle, dict):
            raise CheckpointError(f"{where}: eagle_config is {eagle!r}; expected an object")
        for option in UNSUPPORTED_OPTIONS:
            if config.get(option) or eagle.get(option):
                raise CheckpointError(f"{where}: {option} is set, which the embedded engine does not compute; serve it with vLLM")
        if config.get("num_hidden_layers", 1) != 1:
            raise CheckpointError(f"{where}: num_hidden_layers is {config['num_hidden_layers']}; expected one decoder layer")
        like_llama = {**config, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
        shape = LlamaConfig.from_folder(ModelFolder(path=folder.path, config=like_llama, tensors=folder.tensors))
        for key, mine, theirs in (
            ("hidden_size", shape.hidden_size, target.hidden_size),
            ("vocab_size", shape.vocab_size, target.vocab_size),
        ):
            if mine != theirs:
                raise CheckpointError(
                    f"{where}: {key} is {mine} but the target's is {theirs}: this head was made for another model"
                )
        draft_vocab_size = config.get("draft_vocab_size") or shape.vocab_size
        if not isinstance(draft_vocab_size, int) or not 0 < draft_vocab_size <= shape.vocab_size:
            raise CheckpointError(f"{where}: draft_vocab_size is {draft_vocab_size!r}; expected 1 to {shape.vocab_size}")
        layers, source = _auxiliary_layers(config, eagle, target, where)
        return cls(
            shape=shape,
            draft_vocab_size=draft_vocab_size,
            auxiliary_layers=layers,
            auxiliary_source=source,
            fc_norm=_flag(config, "fc_norm", where),
            norm_output=_flag(config, "norm_output", where),
            # vLLM looks inside eagle_config first
            norm_before_fc=_flag({"norm_before_fc": config.get("norm_before_fc"), **eagle}, "norm_before_fc", where),
            norm_before_residual=_flag(config, "norm_before_residual", where),
        )


def _flag(config: Mapping[str, Any], key: str, where: str) -> bool:
    """At top level only, where both engines look."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(f"{where}: {key} is {value!r}; expected true or false")
    return bool(value)


def _auxiliary_layers(
    config: Mapping[str, Any], eagle: Mapping[str, Any], target: TargetSizes, where: str
) -> tuple[tuple[int, int, int], str]:
    ids: Any
    if config.get(IDS_KEY) is not None:
        ids, source = config[IDS_KEY], f"config {IDS_KEY} (layer inputs)"
    elif eagle.get(IDS_KEY) is not None:
        ids, source = eagle[IDS_KEY], f"config eagle_config.{IDS_KEY} (layer outputs, so one is added)"
        ids = [layer + 1 if isinstance(layer, int) else layer for layer in ids] if isinstance(ids, list) else ids
    else:
        ids, source = list(default_auxiliary_layers(target.num_layers)), "default, since the config names none"
    if not (isinstance(ids, list) and len(ids) == 3 and all(isinstance(layer, int) for layer in ids)):
        raise CheckpointError(f"{where}: {IDS_KEY} is {ids}; expected three layer numbers")
    if not all(0 <= layer < target.num_layers for layer in ids):
        raise CheckpointError(f"{where}: {source} gives {ids}; the target has layers 0 to {target.num_layers - 1}")
    return (ids[0], ids[1], ids[2]), source


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Weights:
    """H hidden, V target vocabulary, W draft vocabulary; `target_ids` [W] maps draft ids to target ids."""

    fc: Tensor  # [H, 3H]
    embed_norm: Tensor  # [H] input_layernorm
    hidden_norm: Tensor  # [H]
    qkv: Tensor  # [(N + 2K) D, 2H]
    out: Tensor  # [H, N D]
    post_norm: Tensor  # [H]
    gate_up: Tensor  # [2I, H]
    down: Tensor  # [H, I]
    norm: Tensor  # [H]
    head: Tensor  # [W, H]
    embed: Tensor | None  # [V, H], None: the target's
    target_ids: Tensor  # [W] int64
    fc_norm: Tensor | None = None  # [3, H], low to high
    input_norm: Tensor | None = None  # [3H], of norm_before_fc

    @classmethod
    def from_folder(cls, folder: ModelFolder, config: Eagle3Config, dtype: torch.dtype) -> Eagle3Weights:
        """Read a head in either spelling of its layer (`midlayer.*`, `layers.0.*`).

        Raises:
            CheckpointError: missing, unknown or misshapen tensors, or a vocabulary map that points outside the target's vocabulary.
        """
        prefix = "layers.0." if any(name.startswith("layers.0.") for name in folder.tensors) else "midlayer."
        shape, hidden = config.shape, config.shape.hidden_size
        queries, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, 3 * hidden),
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "hidden_norm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (queries, 2 * hidden),
            prefix + "self_attn.k_proj.weight": (kv, 2 * hidden),
            prefix + "self_attn.v_proj.weight": (kv, 2 * hidden),
            prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "mlp.gate_proj.weight": (shape.intermediate_size, hidden),
            prefix + "mlp.up_proj.weight": (shape.intermediate_size, hidden),
            prefix + "mlp.down_proj.weight": (hidden, shape.intermediate_size),
            "norm.weight": (hidden,),
            "lm_head.weight": (config.draft_vocab_size, hidden),
        }
        fc_norms = [f"fc_norm.{index}.weight" for index in range(3)] if config.fc_norm else []
        shapes |= dict.fromkeys(fc_norms, (hidden,))
        if config.norm_before_fc:
            shapes["input_norm.weight"] = (3 * hidden,)
        own_embedding = "embed_tokens.weight" in folder.tensors
        if own_embedding:
            shapes["embed_tokens.weight"] = (shape.vocab_size, hidden)
        unknown = sorted(set(folder.tensors) - set(shapes) - {"d2t", "t2d", "embed_tokens.weight"})
        if unknown:
            raise CheckpointError(f"{folder.path}: tensors this graph has no place for: {', '.join(map(ascii, unknown[:5]))}")
        tensors = read_tensors(folder, shapes, dtype)
        return cls(
            fc=tensors["fc.weight"],
            embed_norm=tensors[prefix + "input_layernorm.weight"],
            hidden_norm=tensors[prefix + "hidden_norm.weight"],
            qkv=torch.cat([tensors[prefix + f"self_attn.{name}_proj.weight"] for name in "qkv"]),
            out=tensors[prefix + "self_attn.o_proj.weight"],
            post_norm=tensors[prefix + "post_attention_layernorm.weight"],
            gate_up=torch.cat([tensors[prefix + f"mlp.{name}_proj.weight"] for name in ("gate", "up")]),
            down=tensors[prefix + "mlp.down_proj.weight"],
            norm=tensors["norm.weight"],
            head=tensors["lm_head.weight"],
            embed=tensors["embed_tokens.weight"] if own_embedding else None,
            target_ids=_target_ids(folder, config),
            fc_norm=torch.stack([tensors[name] for name in fc_norms]) if fc_norms else None,
            input_norm=tensors.get("input_norm.weight"),
        )

    def to(self, device: torch.device) -> Eagle3Weights:
        """The same weights on `device`."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        moved: dict[str, Any] = {name: None if part is None else part.to(device) for name, part in parts.items()}
        return Eagle3Weights(**moved)


def _target_ids(folder: ModelFolder, config: Eagle3Config) -> Tensor:
    draft_ids = torch.arange(config.draft_vocab_size)
    if "d2t" not in folder.tensors:
        if config.draft_vocab_size != config.shape.vocab_size:
            raise CheckpointError(
                f"{folder.path}: no d2t although draft_vocab_size {config.draft_vocab_size} is below the target's "
                f"{config.shape.vocab_size}: without the map the head's rows belong to unknown tokens"
            )
        return draft_ids
    offsets = read_tensors(folder, {"d2t": (config.draft_vocab_size,)}, None)["d2t"]
    if offsets.is_floating_point():
        raise CheckpointError(f"{folder.path}: d2t is {folder.tensors['d2t'].dtype}; expected whole numbers")
    target_ids = draft_ids + offsets.long()
    if target_ids.min() < 0 or target_ids.max() >= config.shape.vocab_size or target_ids.unique().numel() != target_ids.numel():
        raise CheckpointError(
            f"{folder.path}: d2t gives target ids from {target_ids.min()} to {target_ids.max()}, some perhaps twice; expected "
            f"offsets (target id minus draft id) into 0..{config.shape.vocab_size - 1}. Absolute ids look like this"
        )
    return target_ids
