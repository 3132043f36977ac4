"""Tiny random Llama models and EAGLE-3 heads, written as folders the way trainers write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.serving.tokenizer import BYTE_OF

TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 97,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.3 + (1.0 if len(shape) == 1 else 0.0) for name, shape in shapes.items()
    }


def layer_shapes(prefix: str, config: dict[str, Any], *, attention_input: int) -> dict[str, tuple[int, ...]]:
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    return {
        f"{prefix}.input_layernorm.weight": (hidden,),
        f"{prefix}.self_attn.q_proj.weight": (queries, attention_input),
        f"{prefix}.self_attn.k_proj.weight": (kv, attention_input),
        f"{prefix}.self_attn.v_proj.weight": (kv, attention_input),
        f"{prefix}.self_attn.o_proj.weight": (hidden, queries),
        f"{prefix}.post_attention_layernorm.weight": (hidden,),
        f"{prefix}.mlp.gate_proj.weight": (intermediate, hidden),
        f"{prefix}.mlp.up_proj.weight": (intermediate, hidden),
        f"{prefix}.mlp.down_proj.weight": (hidden, intermediate),
    }


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_target(folder: Path, seed: int, **overrides: Any) -> Path:
    config = TARGET_CONFIG | overrides
    vocab, hidden = config["vocab_size"], config["hidden_size"]
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for index in range(config["num_hidden_layers"]):
        shapes |= layer_shapes(f"model.layers.{index}", config, attention_input=hidden)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    return write_folder(folder, config, random_tensors(shapes, seed))


@pytest.fixture
def make_target(tmp_path: Path) -> Callable[..., Path]:
    """Write a random target; keyword arguments replace keys of its configuration."""

    def make(name: str = "target", *, seed: int = 0, **overrides: Any) -> Path:
        return write_target(tmp_path / name, seed, **overrides)

    return make


@pytest.fixture
def make_head(tmp_path: Path) -> Callable[..., Path]:
    """Write a random EAGLE-3 head for the tiny target: a third of the vocabulary, offsets in d2t."""

    def make(
        name: str = "head",
        *,
        seed: int = 1,
        spelling: str = "midlayer",
        own_embedding: bool = False,
        drop: tuple[str, ...] = (),
        extra: dict[str, torch.Tensor] | None = None,
        **overrides: Any,
    ) -> Path:
        config = TARGET_CONFIG | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "tie_word_embeddings": False,
            "intermediate_size": 40,
            "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        }
        config["draft_vocab_size"] = overrides.get("vocab_size", config["vocab_size"]) // 3
        config |= overrides
        config = {key: value for key, value in config.items() if value is not None}
        hidden, draft_vocab = config["hidden_size"], config["draft_vocab_size"]
        shapes = layer_shapes(spelling, config, attention_input=2 * hidden) | {
            "fc.weight": (hidden, 3 * hidden),
            f"{spelling}.hidden_norm.weight": (hidden,),
            "norm.weight": (hidden,),
            "lm_head.weight": (draft_vocab, hidden),
        }
        if config.get("fc_norm"):
            shapes |= {f"fc_norm.{index}.weight": (hidden,) for index in range(3)}
        if config.get("norm_before_fc"):
            shapes["input_norm.weight"] = (3 * hidden,)
        if own_embedding:
            shapes["embed_tokens.weight"] = (config["vocab_size"], hidden)
        tensors = random_tensors(shapes, seed)
        # every third token of the target, so offset 2 i for draft id i
        tensors["d2t"] = torch.arange(draft_vocab) * 2
        token_ids = torch.arange(config["vocab_size"])
        tensors["t2d"] = (token_ids % 3 == 0) & (token_ids < 3 * draft_vocab)
        tensors |= extra or {}
        return write_folder(tmp_path / name, config, {key: tensor for key, tensor in tensors.items() if key not in drop})

    return make


@pytest.fixture
def load_target() -> Callable[[Path], tuple[LlamaConfig, LlamaWeights]]:
    def load(folder: Path) -> tuple[LlamaConfig, LlamaWeights]:
        opened = open_folder(folder)
        config = LlamaConfig.from_folder(opened)
        return config, LlamaWeights.from_folder(opened, config, torch.float32)

    return load


@pytest.fixture
def load_head() -> Callable[[Path, LlamaConfig], tuple[Eagle3Config, Eagle3Weights]]:
    def load(folder: Path, target: LlamaConfig) -> tuple[Eagle3Config, Eagle3Weights]:
        opened = open_folder(folder)
        config = Eagle3Config.from_folder(opened, target)
        return config, Eagle3Weights.from_folder(opened, config, torch.float32)

    return load


TALKING_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TALKING_SPECIALS = ("<|user|>", "<|assistant|>", "<|end|>")
TALKING_VOCAB = 264


def write_talking_target(folder: Path) -> Path:
    """A random target with a byte tokenizer and a chat template, so that whole commands can be run."""
    write_target(folder, 0, vocab_size=TALKING_VOCAB, eos_token_id=258)
    tokenizer = Tokenizer(models.BPE(vocab=dict(BYTE_OF), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in TALKING_SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "chat_template.jinja").write_text(TALKING_TEMPLATE)
    return folder


@pytest.fixture
def talking_target(tmp_path: Path) -> Path:
    return write_talking_target(tmp_path / "talking")


@pytest.fixture(scope="session")
def shared_talking_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that only read it."""
    return write_talking_target(tmp_path_factory.mktemp("shared") / "talking")
