"""An EAGLE-3 head of the right shape with random weights: enough to measure what speculation costs, long before one is trained.

Its drafts are never accepted (accept length 1.00), which is what a dead drafter looks like; with forced acceptance it gives the
break-even curve. The folder follows the layout that vLLM, SGLang and the embedded engine all read: one layer, own lm_head, no
embeddings, offsets in d2t, and both keys of auxiliary layer ids, each in its engine's convention.

Shapes: H hidden, I intermediate, V target vocabulary, W draft vocabulary, Q query heads x D, K key/value heads x D.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from breakeven.checkpoints.cache import cache_dir
from breakeven.checkpoints.folder import ModelFolder, fingerprint, open_folder
from breakeven.checkpoints.model_folder import model_folder
from breakeven.checkpoints.writing import NewTensor, bfloat16, write_safetensors
from breakeven.errors import CheckpointError

__all__ = ["auxiliary_layers", "default_draft_vocab_size", "ensure_random_head", "is_random_head", "write_random_head"]

# The usual initialisation of a head trained from scratch; norms start at one.
INITIAL_STD = 0.02
MAX_DRAFT_VOCAB = 32_768
CACHED_IN = "random-heads"
# So that the float32 draws of one matrix never take more than about 64 MB, whatever the target.
DRAWS_AT_ONCE = 1 << 24


def default_draft_vocab_size(vocab_size: int) -> int:
    """The largest power of two that is at most half the target's vocabulary and at most 32768: what published heads have."""
    return min(MAX_DRAFT_VOCAB, 1 << max(0, (vocab_size // 2).bit_length() - 1))


def auxiliary_layers(num_layers: int) -> tuple[int, int, int]:
    """Low, middle and high layer *inputs*: 2, n // 2, n - 3, or spread out where a shallow target would repeat one of them.

    Raises:
        ValueError: fewer than four layers, where three distinct inputs above the embedding do not exist.
    """
    if num_layers < 4:
        raise ValueError(f"{num_layers} layers; an EAGLE-3 head reads three distinct ones, which takes at least 4")
    low, middle, high = sorted((2, num_layers // 2, num_layers - 3))
    return (low, middle, high) if 1 <= low < middle < high else (1, num_layers // 2, num_layers - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    hidden: int
    intermediate: int
    layers: int
    vocab: int
    draft_vocab: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def for_target(cls, target: ModelFolder, draft_vocab_size: int | None) -> Self:
        text = _text_config(target)

        def number(key: str) -> int:
            value = text.get(key)
            if type(value) is not int or not 0 < value < 1 << 24:
                raise CheckpointError(
                    f"{target.path}/config.json: {key} is {value!r}; expected a positive whole number below {1 << 24}"
                )
            return value

        hidden, vocab, heads, layers = (
            number(key) for key in ("hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers")
        )
        draft_vocab = draft_vocab_size if draft_vocab_size is not None else default_draft_vocab_size(vocab)
        if not 1 <= draft_vocab <= vocab:
            raise CheckpointError(f"a draft vocabulary of {draft_vocab} tokens; expected 1 to the target's {vocab}")
        if layers < 4:
            raise CheckpointError(f"{target.path}: {layers} layers; an EAGLE-3 head reads three distinct ones: expected at least 4")
        # latent attention has no head_dim of its own; public Llama-style heads for such targets use full 128-wide heads
        latent = text.get("kv_lora_rank") is not None
        head_dim = number("head_dim") if text.get("head_dim") is not None else 128 if latent else hidden // heads
        kv_heads = heads if latent or text.get("num_key_value_heads") is None else number("num_key_value_heads")
        if heads % kv_heads or head_dim < 2 or head_dim % 2:
            raise CheckpointError(
                f"{target.path}/config.json: {heads} query heads, {kv_heads} key/value heads of {head_dim}; "
                "expected a multiple of the key/value heads and an even head_dim"
            )
        return cls(
            hidden=hidden,
            intermediate=number("intermediate_size"),
            layers=layers,
            vocab=vocab,
            draft_vocab=draft_vocab,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
        )

    def matrices(self) -> dict[str, tuple[int, int]]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "fc.weight": (self.hidden, 3 * self.hidden),
            "midlayer.self_attn.q_proj.weight": (queries, 2 * self.hidden),
            "midlayer.self_attn.k_proj.weight": (keys, 2 * self.hidden),
            "midlayer.self_attn.v_proj.weight": (keys, 2 * self.hidden),
            "midlayer.self_attn.o_proj.weight": (self.hidden, queries),
            "midlayer.mlp.gate_proj.weight": (self.intermediate, self.hidden),
            "midlayer.mlp.up_proj.weight": (self.intermediate, self.hidden),
            "midlayer.mlp.down_proj.weight": (self.hidden, self.intermediate),
            "lm_head.weight": (self.draft_vocab, self.hidden),
        }


NORMS = ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm")


def write_random_head(target: ModelFolder, out: Path, *, seed: int = 0, draft_vocab_size: int | None = None) -> None:
    """Write a bfloat16 head for `target` into the new folder `out`, all at once or not at all.

    draft_vocab_size: W; by default `default_draft_vocab_size`. The draft's tokens are spread evenly over the target's vocabulary.

    Raises:
        CheckpointError: the target's configuration lacks a size, `out` is there already, or the disk is full.
    """
    sizes = _Sizes.for_target(target, draft_vocab_size)
    with model_folder(out) as building:
        _write_weights(building / "model.safetensors", sizes, seed)
        config = _head_config(_text_config(target), sizes)
        (building / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def ensure_random_head(target: ModelFolder, *, seed: int = 0, draft_vocab_size: int | None = None) -> Path:
    """The cached random head for this target, seed and size, written on first use. Safe for two runs at once.

    Raises:
        CheckpointError: as `write_random_head`, or a cached head that was damaged since.
    """
    size = "" if draft_vocab_size is None else f"-{draft_vocab_size}"
    out = cache_dir() / CACHED_IN / f"{fingerprint(target)}-{seed}{size}"
    if not out.exists():
        try:
            write_random_head(target, out, seed=seed, draft_vocab_size=draft_vocab_size)
        except CheckpointError:
            # another run may have renamed its own, equal one into place in the meantime
            if not out.exists():
                raise
    open_folder(out)
    return out


def is_random_head(drafter: Path) -> bool:
    """Whether a path is one that `ensure_random_head` returned, on whichever machine."""
    return drafter.parent.name == CACHED_IN


def _text_config(target: ModelFolder) -> Mapping[str, Any]:
    """Multimodal targets keep the language model's sizes one level down."""
    nested = target.config.get("text_config")
    return nested if isinstance(nested, dict) else target.config


def _tensors(sizes: _Sizes) -> dict[str, tuple[str, tuple[int, ...]]]:
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {name: ("BF16", shape) for name, shape in sizes.matrices().items()}
    tensors |= {f"{name}.weight": ("BF16", (sizes.hidden,)) for name in NORMS}
    if sizes.draft_vocab < sizes.vocab:  # vLLM refuses a map where the vocabularies are equal
        tensors |= {"d2t": ("I64", (sizes.draft_vocab,)), "t2d": ("BOOL", (sizes.vocab,))}
    return tensors


def _write_weights(file: Path, sizes: _Sizes, seed: int) -> None:
    """Streamed, since a head for a 1T target is 2 GB and neither numpy nor its safetensors bindings have bfloat16."""
    generator = np.random.default_rng(seed)  # drawn from in the order of the tensors

    def tensor(name: str, dtype: str, shape: tuple[int, ...]) -> NewTensor:
        return NewTensor(
            dtype=dtype, shape=shape, chunks=lambda: (part.tobytes() for part in _values(name, shape, sizes, generator))
        )

    write_safetensors(file, {name: tensor(name, dtype, shape) for name, (dtype, shape) in _tensors(sizes).items()})


def _values(name: str, shape: tuple[int, ...], sizes: _Sizes, generator: np.random.Generator) -> Iterator[NDArray[Any]]:
    target_ids = np.arange(sizes.draft_vocab, dtype=np.int64) * sizes.vocab // sizes.draft_vocab
    if name == "d2t":
        yield target_ids - np.arange(sizes.draft_vocab)
    elif name == "t2d":
        known = np.zeros(sizes.vocab, dtype=np.bool_)
        known[target_ids] = True
        yield known
    elif len(shape) == 1:
        yield bfloat16(np.ones(shape, dtype=np.float32))
    else:
        remaining = shape[0] * shape[1]
        while remaining:
            count = min(remaining, DRAWS_AT_ONCE)
            yield bfloat16(generator.standard_normal(count, dtype=np.float32) * np.float32(INITIAL_STD))
            remaining -= count


def _head_config(target: Mapping[str, Any], sizes: _Sizes) -> dict[str, object]:
    layer_inputs = list(auxiliary_layers(sizes.layers))
    rope = target.get("rope_parameters") or target.get("rope_scaling") or {}
    theta = (rope.get("rope_theta") if isinstance(rope, dict) else None) or target.get("rope_theta") or 10000.0
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "num_hidden_layers": 1,
        "vocab_size": sizes.vocab,
        "draft_vocab_size": sizes.draft_vocab,
        "hidden_act": "silu",
        "rms_norm_eps": target.get("rms_norm_eps", 1e-6),
        # a shorter context than the target's is refused by SGLang
        "max_position_embeddings": target.get("max_position_embeddings", 2048),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "norm_before_residual": False,
        # without the target's scaling: a YaRN draft lowers vLLM's context, and random weights need no long positions
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "bos_token_id": target.get("bos_token_id"),
        "eos_token_id": target.get("eos_token_id"),
        # vLLM reads the first key, as layer inputs; SGLang the second, as layer outputs
        "eagle_aux_hidden_state_layer_ids": layer_inputs,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in layer_inputs], "use_aux_hidden_state": True},
    }
