"""A tiny target and a head that predicts it perfectly, made by hand: what a fault does to acceptance is then seen without training.

The target writes a fixed next token for every token: its layers pass the one-hot code of the token on, layer 9 copies that code to
the second half of the state, and its head reads it there. The drafter finds the copy in the state that enters layer 10, steps the
code once with its MLP and reads the token after next from it. So its drafts are always right (accept length k + 1) as long as
everything is where it should be, and never when something is not. Attention adds nothing in either, so positions do not show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.unit.doctor.folders import LAYER_IDS, Array, Folder, drawn_once

VOCAB, HIDDEN, LAYERS, DRAFT_VOCAB = 128, 256, 12, 64
HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 4, 2, 64, 128
CYCLE = 40
INPUTS = [3, 7, 10]
# A one-hot of 256 normed to unit mean square is 16 at its place; silu(16) * 16 is 256.
NORMED = 16.0
STEP = 1.0 / 256.0
COPYING_LAYER = 9


def next_tokens() -> Array:
    """[VOCAB]: a cycle through the first draft tokens, into which all others lead."""
    ids = draft_ids()[:CYCLE]
    following = np.full(VOCAB, ids[0])
    following[ids] = np.roll(ids, -1)
    return following


def draft_ids() -> Array:
    """[DRAFT_VOCAB] target ids, ascending, with gaps and neighbours."""
    return np.sort(np.concatenate([np.arange(3, 67, 2), np.arange(68, 100)])).astype(np.int64)


def target() -> Folder:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    embeddings = np.zeros((VOCAB, HIDDEN), np.float32)
    embeddings[np.arange(VOCAB), np.arange(VOCAB)] = 1
    head = np.zeros((VOCAB, HIDDEN), np.float32)
    head[next_tokens(), VOCAB + np.arange(VOCAB)] = 1
    tensors = {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": head,
    }
    for layer in range(LAYERS):
        tensors |= {f"model.layers.{layer}.{name}": values for name, values in _layer(HIDDEN).items()}
    tensors[f"model.layers.{COPYING_LAYER}.mlp.gate_proj.weight"] = _first_half()
    tensors[f"model.layers.{COPYING_LAYER}.mlp.up_proj.weight"] = _first_half()
    copy = np.zeros((HIDDEN, INTERMEDIATE), np.float32)
    copy[VOCAB + np.arange(VOCAB), np.arange(VOCAB)] = STEP
    tensors[f"model.layers.{COPYING_LAYER}.mlp.down_proj.weight"] = copy
    return Folder(name="target", config=config, tensors=tensors)


def draft() -> Folder:
    config = {
        **target().config,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": DRAFT_VOCAB,
        "attention_bias": False,
        "norm_before_residual": False,
        LAYER_IDS: INPUTS,
        "eagle_config": {LAYER_IDS: [one - 1 for one in INPUTS], "use_aux_hidden_state": True},
    }
    del config["bos_token_id"], config["eos_token_id"]
    fc = np.zeros((HIDDEN, 3 * HIDDEN), np.float32)
    fc[np.arange(VOCAB), 2 * HIDDEN + VOCAB + np.arange(VOCAB)] = 1
    step = np.zeros((HIDDEN, INTERMEDIATE), np.float32)
    step[next_tokens(), np.arange(VOCAB)] += STEP
    step[np.arange(VOCAB), np.arange(VOCAB)] -= STEP
    ids = draft_ids()
    head = np.zeros((DRAFT_VOCAB, HIDDEN), np.float32)
    following = next_tokens()
    for row, token in enumerate(ids):
        head[row, np.flatnonzero(following == token)] = 1
    marks = np.zeros(VOCAB, np.bool_)
    marks[ids] = True
    tensors: dict[str, Any] = {f"midlayer.{name}": values for name, values in _layer(2 * HIDDEN).items()}
    tensors |= {
        "midlayer.hidden_norm.weight": np.ones(HIDDEN, np.float32),
        "midlayer.mlp.gate_proj.weight": _first_half(),
        "midlayer.mlp.up_proj.weight": _first_half(),
        "midlayer.mlp.down_proj.weight": step,
        "fc.weight": fc,
        "norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": head,
        "d2t": ids - np.arange(DRAFT_VOCAB),
        "t2d": marks,
    }
    return Folder(name="draft", config=config, tensors=tensors)


def _first_half() -> Array:
    matrix = np.zeros((INTERMEDIATE, HIDDEN), np.float32)
    matrix[np.arange(VOCAB), np.arange(VOCAB)] = 1
    return matrix


@drawn_once
def _layer(attention_input: int) -> dict[str, Array]:
    generator = np.random.default_rng(1)
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "self_attn.q_proj.weight": (0.02 * generator.standard_normal((queries, attention_input))).astype(np.float32),
        "self_attn.k_proj.weight": (0.02 * generator.standard_normal((keys, attention_input))).astype(np.float32),
        "self_attn.v_proj.weight": (0.02 * generator.standard_normal((keys, attention_input))).astype(np.float32),
        "self_attn.o_proj.weight": np.zeros((HIDDEN, queries), np.float32),
        "mlp.gate_proj.weight": np.zeros((INTERMEDIATE, HIDDEN), np.float32),
        "mlp.up_proj.weight": np.zeros((INTERMEDIATE, HIDDEN), np.float32),
        "mlp.down_proj.weight": np.zeros((HIDDEN, INTERMEDIATE), np.float32),
        "input_layernorm.weight": np.ones(HIDDEN, np.float32),
        "post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
    }
