"""A Llama-architecture GGUF file turned into a Hugging Face folder of bfloat16 weights.

Read with the `gguf` package alone: the loader of `transformers` marks the result as quantized, so that it cannot be saved, and
builds the tokenizer without the file's pre-tokenizer, so that digits are split otherwise than in training.

Two conventions differ between the formats. GGUF interleaves the two halves of each rotary pair (rows 0, h/2, 1, h/2 + 1, ... of
every head of q_proj and k_proj), Hugging Face keeps the halves apart. And GGUF names tensors by role, not by module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from breakeven.errors import CheckpointError

__all__ = ["convert_gguf"]

OUTER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
CONTROL_TOKEN = 3  # token_type of GGUF: never the result of merging text

# What the files' `tokenizer.ggml.pre` stands for, as the tokenizers library says it.
PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
}


def convert_gguf(gguf_path: Path, folder: Path) -> None:
    """Write config, generation config, weights (bfloat16), tokenizer and chat template of `gguf_path` into `folder`.

    Raises:
        CheckpointError: not a GGUF file, damaged, or of an architecture or tokenizer that is not converted here.
        OSError: the disk is full or cannot be written.
    """
    try:
        reader = gguf.GGUFReader(gguf_path)
    except (ValueError, IndexError, EOFError) as error:
        raise CheckpointError(f"{gguf_path} cannot be read as GGUF ({error}): fetch it again") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture, tokenizer_kind = fields.get("general.architecture"), fields.get("tokenizer.ggml.model")
    if architecture != "llama" or tokenizer_kind != "gpt2":
        raise CheckpointError(
            f"{gguf_path} holds architecture {architecture!r} with tokenizer {tokenizer_kind!r}: only llama with gpt2 is converted"
        )
    weights = dict(_weights(reader, num_heads=fields["llama.attention.head_count"], num_kv_heads=_num_kv_heads(fields)))
    config = _config(fields, tied="lm_head.weight" not in weights)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    _write_tokenizer(fields, folder)
    try:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # the library wraps what the system said into words
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else 0, str(error)) from error
    (folder / "model.safetensors").chmod(0o644)  # it is written through a private temporary file


def _num_kv_heads(fields: dict[str, Any]) -> int:
    return int(fields.get("llama.attention.head_count_kv", fields["llama.attention.head_count"]))


def _weights(reader: Any, *, num_heads: int, num_kv_heads: int) -> Iterator[tuple[str, torch.Tensor]]:
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith("attn_q.weight"):
            values = _rotary_halves_apart(values, num_heads)
        elif tensor.name.endswith("attn_k.weight"):
            values = _rotary_halves_apart(values, num_kv_heads)
        yield _hf_name(tensor.name), torch.from_numpy(np.array(values)).to(torch.bfloat16)  # copied: the file is mapped read-only


def _hf_name(name: str) -> str:
    if name in OUTER_TENSORS:
        return OUTER_TENSORS[name]
    block, _, rest = name.removeprefix("blk.").partition(".")
    if not name.startswith("blk.") or rest not in LAYER_TENSORS:
        raise CheckpointError(f"GGUF tensor {name!r} has no place in a Llama checkpoint: the file is of another architecture")
    return f"model.layers.{block}.{LAYER_TENSORS[rest]}"


def _rotary_halves_apart(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """[num_heads * head_dim, hidden], pairs interleaved -> the same shape with each head's two halves one after the other."""
    rows, hidden = weight.shape
    head_dim = rows // num_heads
    return weight.reshape(num_heads, head_dim // 2, 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    hidden_size, num_heads = int(fields["llama.embedding_length"]), int(fields["llama.attention.head_count"])
    rope_theta = float(fields["llama.rope.freq_base"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden_size,
        "intermediate_size": int(fields["llama.feed_forward_length"]),
        "num_hidden_layers": int(fields["llama.block_count"]),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _num_kv_heads(fields),
        "head_dim": int(fields.get("llama.rope.dimension_count", hidden_size // num_heads)),
        "max_position_embeddings": int(fields["llama.context_length"]),
        # stored as float32: 9.999999747378752e-06 stands for 1e-05
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        # engines on transformers 4 read the first key, those on 5 the second
        "rope_theta": rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": int(fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(fields["tokenizer.ggml.eos_token_id"]),
        "pad_token_id": int(fields["tokenizer.ggml.padding_token_id"]),
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    kind = fields.get("tokenizer.ggml.pre", "gpt-2")
    if kind not in PRE_TOKENIZERS:
        raise CheckpointError(f"GGUF pre-tokenizer {kind!r} is not converted here (known: {', '.join(sorted(PRE_TOKENIZERS))})")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[kind]()
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    special = {
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
    }
    template = fields["tokenizer.chat_template"]
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": int(fields["llama.context_length"]),
            "clean_up_tokenization_spaces": False,
            "add_bos_token": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
            **special,
            "chat_template": template,
        },
    )
    _write_json(folder / "special_tokens_map.json", special)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
