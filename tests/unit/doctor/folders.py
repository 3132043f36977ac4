"""Model folders that tests build: a small target with weights, and heads for it in every public layout. Healthy until broken."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, VOCAB, DRAFT_VOCAB, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 64, 12, 512, 128, 4, 2, 16, 96
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
Array = NDArray[Any]


@dataclass
class Folder:
    """What will be written: tests change `config` and `tensors` (numpy arrays, stored as they are) before `write`."""

    name: str
    config: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        folder = root / self.name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "model.safetensors").write_bytes(safetensors(self.tensors))
        for name, text in self.files.items():
            (folder / name).write_text(text)
        return folder

    def rename(self, before: str, after: str) -> None:
        self.tensors = {name.replace(before, after): values for name, values in self.tensors.items()}


class Packed(np.ndarray):  # type: ignore[type-arg]
    """Raw bytes under another dtype's name, for formats that numpy has not."""

    dtype_name: str


def packed(name: str, shape: tuple[int, ...], bits: int) -> Array:
    raw = np.zeros(int(np.prod(shape)) * bits // 8, np.uint8).view(Packed)
    raw.dtype_name, raw.stored_shape = name, shape  # type: ignore[attr-defined]
    return raw


_NAMES = {"f4": "F32", "f2": "F16", "f8": "F64", "i8": "I64", "i4": "I32", "b1": "BOOL", "u1": "U8", "i1": "I8"}


def safetensors(tensors: dict[str, Array]) -> bytes:
    header: dict[str, Any] = {}
    position, parts = 0, []
    for name, values in tensors.items():
        data = values.tobytes()
        dtype = values.dtype_name if isinstance(values, Packed) else _NAMES[values.dtype.str[1:]]
        shape = values.stored_shape if isinstance(values, Packed) else values.shape  # type: ignore[attr-defined]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + len(data)]}
        position += len(data)
        parts.append(data)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + b"".join(parts)


def trained(generator: np.random.Generator, rows: int, width: int) -> Array:
    """A matrix that looks trained: rows of different length, a common direction, heavy tails."""
    scale = np.exp(0.4 * generator.standard_normal((rows, 1)))
    common = 0.3 * generator.standard_normal((1, width))
    values = scale * (generator.standard_t(5, (rows, width)) + common)
    return (0.05 * values).astype(np.float32)


def drawn_once(draw: Callable[..., dict[str, Array]]) -> Callable[..., dict[str, Array]]:
    """Hundreds of tests break the same healthy tensors: they are drawn once, and each test has a copy."""
    kept = functools.cache(draw)

    def copies(*args: Any, **options: Any) -> dict[str, Array]:
        return {name: values.copy() for name, values in kept(*args, **options).items()}

    return copies


@drawn_once
def target_tensors() -> dict[str, Array]:
    generator = np.random.default_rng(7)
    return {
        "model.embed_tokens.weight": trained(generator, VOCAB, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": trained(generator, VOCAB, HIDDEN),
    }


def make_target(name: str = "target", **changes: Any) -> Folder:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **changes,
    }
    return Folder(name=name, config=config, tensors=target_tensors())


def draft_ids() -> Array:
    """Target ids of the draft vocabulary: runs of neighbours, as frequent tokens are."""
    generator = np.random.default_rng(3)
    chosen = np.concatenate([np.arange(40), 40 + generator.choice(VOCAB - 40, DRAFT_VOCAB - 40, replace=False)])
    return np.sort(chosen).astype(np.int64)


@drawn_once
def head_tensors(prefix: str = "midlayer.", *, embeddings: bool = False) -> dict[str, Array]:
    generator = np.random.default_rng(11)
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        f"{prefix}self_attn.q_proj.weight": (queries, 2 * HIDDEN),
        f"{prefix}self_attn.k_proj.weight": (keys, 2 * HIDDEN),
        f"{prefix}self_attn.v_proj.weight": (keys, 2 * HIDDEN),
        f"{prefix}self_attn.o_proj.weight": (HIDDEN, queries),
        f"{prefix}mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        f"{prefix}mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        f"{prefix}mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
    }
    tensors: dict[str, Array] = {name: trained(generator, *shape) for name, shape in shapes.items()}
    for norm in (f"{prefix}input_layernorm", f"{prefix}hidden_norm", f"{prefix}post_attention_layernorm", "norm"):
        tensors[f"{norm}.weight"] = (1 + 0.2 * generator.standard_normal(HIDDEN)).astype(np.float32)
    ids = draft_ids()
    marks = np.zeros(VOCAB, np.bool_)
    marks[ids] = True
    tensors["d2t"] = ids - np.arange(DRAFT_VOCAB)
    tensors["t2d"] = marks
    if embeddings:
        tensors["embed_tokens.weight"] = target_tensors()["model.embed_tokens.weight"]
    return tensors


def base_config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 8192,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **changes,
    }


INPUTS = [2, LAYERS // 2, LAYERS - 3]
OUTPUTS = [one - 1 for one in INPUTS]


def portable() -> Folder:
    """Both keys in both conventions, as Breakeven writes heads."""
    config = base_config(**{LAYER_IDS: INPUTS, "eagle_config": {LAYER_IDS: OUTPUTS, "use_aux_hidden_state": True}})
    return Folder(name="draft", config=config, tensors=head_tensors())


def original_eagle() -> Folder:
    """SafeAILab: no ids at all, its own embeddings."""
    return Folder(name="draft", config=base_config(torch_dtype="float16"), tensors=head_tensors(embeddings=True))


def specforge() -> Folder:
    config = base_config(eagle_config={LAYER_IDS: OUTPUTS, "use_aux_hidden_state": True})
    return Folder(name="draft", config=config, tensors=head_tensors())


def speculators() -> Folder:
    """Nested layer configuration, layers.0 names, the target's head frozen and sliced, embeddings copied."""
    layer = {
        key: value
        for key, value in base_config().items()
        if key not in ("architectures", "draft_vocab_size", "torch_dtype", "tie_word_embeddings")
    }
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "draft_vocab_size": DRAFT_VOCAB,
        "norm_before_residual": True,
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        LAYER_IDS: INPUTS,
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "example/target"},
        },
    }
    tensors = head_tensors("layers.0.", embeddings=True)
    tensors["lm_head.weight"] = make_target().tensors["lm_head.weight"][draft_ids()]
    return Folder(name="draft", config=config, tensors=tensors)


def model_optimizer() -> Folder:
    """NVIDIA: layers.0 names, trained at theta 1e4 with YaRN put in at export."""
    config = base_config(
        eagle_config={LAYER_IDS: OUTPUTS, "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True},
        rope_theta=10000.0,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048},
    )
    return Folder(name="draft", config=config, tensors=head_tensors("layers.0."))


def torchspec() -> Folder:
    config = base_config(eagle_config={LAYER_IDS: OUTPUTS, "use_aux_hidden_state": True}, rope_theta=1000000.0)
    return Folder(name="draft", config=config, tensors=head_tensors(embeddings=True))


LAYOUTS: dict[str, Callable[[], Folder]] = {
    "portable": portable,
    "original EAGLE": original_eagle,
    "SpecForge": specforge,
    "speculators": speculators,
    "Model-Optimizer": model_optimizer,
    "TorchSpec": torchspec,
}


def copied(folder: Folder) -> Folder:
    return copy.deepcopy(folder)
