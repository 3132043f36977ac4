"""An EAGLE-3 head of the right shape with random weights: enough to measure what speculation costs, long before one is trained.

Its drafts are never accepted (accept length 1.00), which is what a dead drafter looks like; with forced acceptance it gives the
break-even curve. The folder follows the layout that vLLM, SGLang and the embedded engine all read: one layer, own lm_head, no
embeddings, offsets in d2t, and both keys of auxiliary layer ids, each in its engine's convention.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from breakeven.checkpoints.cache import cache_dir
from breakeven.checkpoints.folder import ModelFolder, fingerprint
from breakeven.errors import CheckpointError

__all__ = ["ensure_random_head", "write_random_head"]

# The usual initialisation of such layers; norms start at one.
INITIAL_STD = 0.02
DEFAULT_DRAFT_VOCAB = 16_384


def write_random_head(target: ModelFolder, out: Path, *, seed: int = 0, draft_vocab_size: int | None = None) -> None:
    """Write a head for `target` into the new folder `out`, all at once or not at all.

    Raises:
        CheckpointError: the target's configuration lacks a size, or `out` is there already.
    """
    if out.exists():
        raise CheckpointError(f"{out}: is there already; choose another folder or remove it")
    config = target.config
    text = config.get("text_config") or config
    sizes = {key: _size(target, text, key) for key in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")}
    sizes["num_hidden_layers"] = _size(target, text, "num_hidden_layers")
    draft_vocab_size = draft_vocab_size or min(DEFAULT_DRAFT_VOCAB, sizes["vocab_size"])
    if not 1 <= draft_vocab_size <= sizes["vocab_size"]:
        raise CheckpointError(f"draft vocabulary of {draft_vocab_size}; expected 1 to the target's {sizes['vocab_size']}")
    num_kv_heads = text.get("num_key_value_heads") or sizes["num_attention_heads"]
    head_dim = text.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"]
    tensors = _random_tensors(sizes, num_kv_heads, head_dim, draft_vocab_size, np.random.default_rng(seed))
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        save_file(tensors, building / "model.safetensors")
        head_config = _head_config(text, sizes, num_kv_heads, head_dim, draft_vocab_size)
        (building / "config.json").write_text(json.dumps(head_config, indent=2) + "\n", encoding="utf-8")
        building.chmod(0o755)
        building.rename(out)
    except OSError as error:
        raise CheckpointError(f"{out}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def ensure_random_head(target: ModelFolder, *, seed: int = 0) -> Path:
    """The cached random head for this target and seed, written on first use. Safe for two runs at once."""
    out = cache_dir() / "random-heads" / f"{fingerprint(target)}-{seed}"
    if not out.exists():
        try:
            write_random_head(target, out, seed=seed)
        except CheckpointError:
            # another run may have written it between the two looks
            if not out.exists():
                raise
    return out


def _size(target: ModelFolder, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value <= 0:
        raise CheckpointError(f"{target.path}/config.json: {key} is {value!r}; expected a positive whole number")
    return value


def _random_tensors(
    sizes: dict[str, int], num_kv_heads: int, head_dim: int, draft_vocab_size: int, generator: np.random.Generator
) -> dict[str, np.ndarray[Any, Any]]:
    hidden, intermediate = sizes["hidden_size"], sizes["intermediate_size"]
    queries, kv = sizes["num_attention_heads"] * head_dim, num_kv_heads * head_dim
    matrices = {
        "fc.weight": (hidden, 3 * hidden),
        "midlayer.self_attn.q_proj.weight": (queries, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (kv, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (kv, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, queries),
        "midlayer.mlp.gate_proj.weight": (intermediate, hidden),
        "midlayer.mlp.up_proj.weight": (intermediate, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, intermediate),
        "lm_head.weight": (draft_vocab_size, hidden),
    }
    norms = ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm")
    tensors: dict[str, np.ndarray[Any, Any]] = {
        name: (generator.standard_normal(shape, dtype=np.float32) * INITIAL_STD).astype(np.float16)
        for name, shape in matrices.items()
    }
    tensors |= {f"{name}.weight": np.ones(hidden, dtype=np.float16) for name in norms}
    # An even spread over the vocabulary, increasing, so that d2t is a true map and not the identity.
    target_ids = np.linspace(0, sizes["vocab_size"] - 1, draft_vocab_size).round().astype(np.int64)
    tensors["d2t"] = target_ids - np.arange(draft_vocab_size)
    tensors["t2d"] = np.isin(np.arange(sizes["vocab_size"]), target_ids)
    return tensors


def _head_config(
    target: dict[str, Any], sizes: dict[str, int], num_kv_heads: int, head_dim: int, draft_vocab_size: int
) -> dict[str, object]:
    num_layers = sizes["num_hidden_layers"]
    layer_inputs = [2, num_layers // 2, num_layers - 3]
    rope = {**(target.get("rope_scaling") or {}), **(target.get("rope_parameters") or {})}
    theta = rope.get("rope_theta") or target.get("rope_theta") or 10000.0
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": sizes["hidden_size"],
        "intermediate_size": sizes["intermediate_size"],
        "num_attention_heads": sizes["num_attention_heads"],
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "num_hidden_layers": 1,
        "vocab_size": sizes["vocab_size"],
        "draft_vocab_size": draft_vocab_size,
        "hidden_act": "silu",
        "rms_norm_eps": target.get("rms_norm_eps", 1e-6),
        "max_position_embeddings": target.get("max_position_embeddings", 2048),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "norm_before_residual": False,
        "rope_theta": theta,
        "rope_scaling": scaling if scaling.get("rope_type", "default") != "default" else None,
        "rope_parameters": {"rope_theta": theta, **({"rope_type": "default"} | scaling)},
        "torch_dtype": "float16",
        "bos_token_id": target.get("bos_token_id"),
        "eos_token_id": target.get("eos_token_id"),
        # vLLM reads the first key, as layer inputs; SGLang the second, as layer outputs.
        "eagle_aux_hidden_state_layer_ids": layer_inputs,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in layer_inputs], "use_aux_hidden_state": True},
    }
