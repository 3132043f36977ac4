"""Llama-architecture models as data: the configuration, and the weights read from a folder.

Shapes: H hidden, I intermediate, V vocabulary, N query heads, K key/value heads, D head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder, own_file
from breakeven.checkpoints.headers import MAX_JSON_BYTES, read_json
from breakeven.drafter.model.rope import MAX_SCALAR, inverse_frequencies, rope_magnitude
from breakeven.errors import CheckpointError

__all__ = ["LayerWeights", "LlamaConfig", "LlamaWeights", "read_tensors"]

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM",)
WEIGHT_DTYPES = ("F64", "F32", "F16", "BF16")
MAX_SIZE = 1 << 30  # of any width, count or context: beyond, it is no model
MAX_LAYERS = 10_000  # the names of all their tensors are held before any weight is seen
MAX_HEAD_DIM = 16_384  # the frequencies of all of it are held before any weight is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, object]
    tie_word_embeddings: bool
    eos_token_ids: frozenset[int]

    @classmethod
    def from_folder(cls, folder: ModelFolder) -> LlamaConfig:
        """Read `config.json`, in the spelling of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters).

        Raises:
            CheckpointError: another architecture, a missing key, or an option this engine would compute differently.
        """
        config = folder.config
        architectures = config.get("architectures") or []
        if not isinstance(architectures, list) or not set(architectures) & set(SUPPORTED_ARCHITECTURES):
            raise CheckpointError(
                f"{folder.path}/config.json: architectures is {architectures}; the embedded engine serves "
                f"{', '.join(SUPPORTED_ARCHITECTURES)} only. Use engine vllm or sglang for other models."
            )
        if config.get("hidden_act", "silu") != "silu":
            raise CheckpointError(f"{folder.path}/config.json: hidden_act is {config['hidden_act']!r}; expected 'silu'")
        for key in ("attention_bias", "mlp_bias"):
            if config.get(key):
                raise CheckpointError(f"{folder.path}/config.json: {key} is true, which the embedded engine does not compute")

        def number(key: str, most: int = MAX_SIZE) -> int:
            value = config.get(key)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
                raise CheckpointError(
                    f"{folder.path}/config.json: {key} is {value!r}; expected a positive whole number of at most {most}"
                )
            return value

        num_heads = number("num_attention_heads")
        num_kv_heads = number("num_key_value_heads") if config.get("num_key_value_heads") is not None else num_heads
        head_dim = number("head_dim") if config.get("head_dim") is not None else number("hidden_size") // num_heads
        if num_heads % num_kv_heads or head_dim % 2 or head_dim > MAX_HEAD_DIM:
            raise CheckpointError(
                f"{folder.path}/config.json: {num_heads} query heads, num_key_value_heads {num_kv_heads}, head_dim {head_dim}; "
                f"expected a multiple of the key/value heads and an even head_dim up to {MAX_HEAD_DIM}"
            )
        rope: dict[str, Any] = {}
        for key in ("rope_scaling", "rope_parameters"):
            given = config.get(key) or {}
            if not isinstance(given, dict):
                raise CheckpointError(f"{folder.path}/config.json: {key} is {given!r}; expected an object")
            rope |= given
        scalars = {
            "rope_theta": next(
                (given for given in (rope.get("rope_theta"), config.get("rope_theta")) if given is not None), 10000.0
            ),
            "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
        }
        for key, value in scalars.items():
            # JSON from Python may say NaN and Infinity, and whole numbers beyond every float
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_SCALAR:
                raise CheckpointError(f"{folder.path}/config.json: {key} is {value!r}; expected a positive number")
        # an unknown type of scaling is reported now, not after gigabytes of weights
        inverse_frequencies(rope, head_dim, scalars["rope_theta"])
        rope_magnitude(rope)
        return cls(
            hidden_size=number("hidden_size"),
            intermediate_size=number("intermediate_size"),
            num_layers=number("num_hidden_layers", MAX_LAYERS),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            vocab_size=number("vocab_size"),
            max_positions=number("max_position_embeddings"),
            rms_norm_eps=float(scalars["rms_norm_eps"]),
            rope_theta=float(scalars["rope_theta"]),
            rope_scaling=rope,
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            eos_token_ids=_eos_token_ids(config) | _eos_token_ids(_generation_config(folder.path)),
        )


def _eos_token_ids(config: Mapping[str, object]) -> frozenset[int]:
    eos = config.get("eos_token_id")
    return frozenset(token for token in (eos if isinstance(eos, list) else [eos]) if isinstance(token, int))


def _generation_config(path: Path) -> Mapping[str, object]:
    """Chat models name their end-of-turn tokens there rather than in config.json; the file is optional."""
    file = own_file(path, "generation_config.json", max_bytes=MAX_JSON_BYTES)
    return {} if file is None else read_json(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One decoder layer; query, key and value rows are stacked, and so are gate and up, so that each is one matmul."""

    input_norm: Tensor  # [H]
    qkv: Tensor  # [(N + 2K) D, H]
    out: Tensor  # [H, N D]
    post_norm: Tensor  # [H]
    gate_up: Tensor  # [2I, H]
    down: Tensor  # [H, I]


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaWeights:
    embed: Tensor  # [V, H]
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [H]
    head: Tensor  # [V, H], the same storage as `embed` when tied

    @classmethod
    def from_folder(cls, folder: ModelFolder, config: LlamaConfig, dtype: torch.dtype) -> LlamaWeights:
        """Read every tensor the graph needs.

        Raises:
            CheckpointError: a tensor is missing or has another shape than the configuration says.
        """
        hidden, kv = config.hidden_size, config.num_kv_heads * config.head_dim
        queries = config.num_heads * config.head_dim
        shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
        for index in range(config.num_layers):
            layer = f"model.layers.{index}."
            shapes |= {
                layer + "input_layernorm.weight": (hidden,),
                layer + "self_attn.q_proj.weight": (queries, hidden),
                layer + "self_attn.k_proj.weight": (kv, hidden),
                layer + "self_attn.v_proj.weight": (kv, hidden),
                layer + "self_attn.o_proj.weight": (hidden, queries),
                layer + "post_attention_layernorm.weight": (hidden,),
                layer + "mlp.gate_proj.weight": (config.intermediate_size, hidden),
                layer + "mlp.up_proj.weight": (config.intermediate_size, hidden),
                layer + "mlp.down_proj.weight": (hidden, config.intermediate_size),
            }
        if not config.tie_word_embeddings:
            shapes["lm_head.weight"] = (config.vocab_size, hidden)
        tensors = read_tensors(folder, shapes, dtype)
        embed = tensors["model.embed_tokens.weight"]
        layers = []
        for index in range(config.num_layers):
            layer = f"model.layers.{index}."
            layers.append(
                LayerWeights(
                    input_norm=tensors[layer + "input_layernorm.weight"],
                    qkv=torch.cat([tensors.pop(layer + f"self_attn.{name}_proj.weight") for name in "qkv"]),
                    out=tensors[layer + "self_attn.o_proj.weight"],
                    post_norm=tensors[layer + "post_attention_layernorm.weight"],
                    gate_up=torch.cat([tensors.pop(layer + f"mlp.{name}_proj.weight") for name in ("gate", "up")]),
                    down=tensors[layer + "mlp.down_proj.weight"],
                )
            )
        return cls(
            embed=embed,
            layers=tuple(layers),
            norm=tensors["model.norm.weight"],
            head=embed if config.tie_word_embeddings else tensors["lm_head.weight"],
        )

    def to(self, device: torch.device) -> LlamaWeights:
        """The same weights on `device`; a tied head stays tied."""
        embed = self.embed.to(device)
        return LlamaWeights(
            embed=embed,
            layers=tuple(
                LayerWeights(**{part.name: getattr(layer, part.name).to(device) for part in fields(LayerWeights)})
                for layer in self.layers
            ),
            norm=self.norm.to(device),
            head=embed if self.head is self.embed else self.head.to(device),
        )


def read_tensors(folder: ModelFolder, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The named tensors of a folder, checked against the shapes the graph expects and converted to `dtype` (None: as stored).

    Raises:
        CheckpointError: names the tensors that are missing, or the first that has another shape, or holds NaN or infinity.
    """
    missing = [name for name in shapes if name not in folder.tensors]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise CheckpointError(
            f"{folder.path}: tensors are missing: {', '.join(missing[:3])}{more}; the checkpoint is incomplete or of another layout"
        )
    for name, shape in shapes.items():
        if folder.tensors[name].shape != shape:
            found = list(folder.tensors[name].shape)
            raise CheckpointError(f"{folder.path}: {name} has shape {found}; config.json asks for {list(shape)}")
        if dtype is not None and folder.tensors[name].dtype not in WEIGHT_DTYPES:
            # whole numbers read as weights would serve, and answer nonsense
            found_dtype = folder.tensors[name].dtype
            raise CheckpointError(
                f"{folder.path}: {name} is {found_dtype}; the embedded engine computes with {', '.join(WEIGHT_DTYPES)}: "
                "take a checkpoint that is not quantized, or use engine vllm or sglang"
            )
    by_file: dict[Path, list[str]] = {}
    for name in shapes:
        by_file.setdefault(folder.tensors[name].file, []).append(name)
    tensors = {}
    for file, names in by_file.items():
        try:
            with safe_open(file, framework="pt") as opened:
                for name in names:
                    tensor = opened.get_tensor(name)
                    tensors[name] = tensor if dtype is None else _finite(folder, name, tensor.to(dtype))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file}: cannot be read as safetensors ({error}); fetch the model again") from error
    return tensors


def _finite(folder: ModelFolder, name: str, tensor: Tensor) -> Tensor:
    """A model with one NaN in it computes, and says nonsense: a drafter of that kind looks like one that is never accepted."""
    # a sum tells as much in a fraction of the time; only large numbers can overflow it
    if bool(tensor.sum(dtype=torch.float32).isfinite()) or bool(tensor.isfinite().all()):
        return tensor
    raise CheckpointError(
        f"{folder.path}: {name} holds NaN or infinity in {str(tensor.dtype).removeprefix('torch.')}; fetch or train it again"
    )
