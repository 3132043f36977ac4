"""A real model that loads in a blink: a random Llama with a byte tokenizer, small enough to write on the fly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from breakeven.drafter.serving.tokenizer import BYTE_OF

HIDDEN, INTERMEDIATE, NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 8, 4, 2, 16, 257


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-model")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "eos_token_id": 256,
    }
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(NUM_LAYERS):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.input_layernorm.weight": (HIDDEN,),
            f"{name}.self_attn.q_proj.weight": (NUM_HEADS * HEAD_DIM, HIDDEN),
            f"{name}.self_attn.k_proj.weight": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
            f"{name}.self_attn.v_proj.weight": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
            f"{name}.self_attn.o_proj.weight": (HIDDEN, NUM_HEADS * HEAD_DIM),
            f"{name}.post_attention_layernorm.weight": (HIDDEN,),
            f"{name}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{name}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{name}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn(shape, generator=generator) * 0.2 + (1.0 if len(shape) == 1 else 0.0) for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(models.BPE(vocab=dict(BYTE_OF.items()), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|end|>"}))
    return folder


@pytest.fixture(scope="session")
def find_marked() -> Callable[[str], dict[int, str]]:
    """Pid and command of every running process whose environment holds a mark: who was given it, and all that inherited it."""

    def find(mark: str) -> dict[int, str]:
        found = {}
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                if mark.encode() in (process / "environ").read_bytes() and "\nState:\tZ" not in (process / "status").read_text():
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return found

    return find
