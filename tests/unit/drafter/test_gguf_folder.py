"""A tiny GGUF written with the `gguf` package comes back as the Hugging Face folder it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.gguf_folder import convert_gguf
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.serving.tokenizer import BYTE_OF, TextTokenizer
from breakeven.errors import CheckpointError

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, LAYERS = 16, 2, 1, 8, 24, 2
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def interleaved(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """What a GGUF converter does to q_proj and k_proj: row i of a half goes to row 2i."""
    rows = []
    for head in weight.reshape(num_heads, HEAD_DIM, -1):
        first, second = head[: HEAD_DIM // 2], head[HEAD_DIM // 2 :]
        rows += [row for pair in zip(first, second, strict=True) for row in pair]
    return np.stack(rows)


def write_gguf(path: Path, *, architecture: str = "llama", pre: str = "smollm") -> dict[str, np.ndarray]:
    """Write a tiny model to `path`; returns its tensors as a Hugging Face checkpoint holds them."""
    random = np.random.default_rng(0)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = sorted(BYTE_OF, key=lambda character: BYTE_OF[character])
    tokens = [*control, *letters, "12", "ab"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(control) + [1] * (len(tokens) - len(control)))
    writer.add_token_merges(["1 2", "a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)

    expected: dict[str, np.ndarray] = {}

    def tensor(name: str, hf_name: str, *shape: int, num_heads: int | None = None) -> None:
        values = expected[hf_name] = random.standard_normal(shape).astype(np.float32)
        writer.add_tensor(name, values if num_heads is None else interleaved(values, num_heads))

    tensor("token_embd.weight", "model.embed_tokens.weight", len(tokens), HIDDEN)
    tensor("output_norm.weight", "model.norm.weight", HIDDEN)
    for layer in range(LAYERS):
        block, module = f"blk.{layer}", f"model.layers.{layer}"
        tensor(f"{block}.attn_norm.weight", f"{module}.input_layernorm.weight", HIDDEN)
        tensor(f"{block}.attn_q.weight", f"{module}.self_attn.q_proj.weight", HEADS * HEAD_DIM, HIDDEN, num_heads=HEADS)
        tensor(f"{block}.attn_k.weight", f"{module}.self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN, num_heads=KV_HEADS)
        tensor(f"{block}.attn_v.weight", f"{module}.self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        tensor(f"{block}.attn_output.weight", f"{module}.self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM)
        tensor(f"{block}.ffn_norm.weight", f"{module}.post_attention_layernorm.weight", HIDDEN)
        tensor(f"{block}.ffn_gate.weight", f"{module}.mlp.gate_proj.weight", INTERMEDIATE, HIDDEN)
        tensor(f"{block}.ffn_up.weight", f"{module}.mlp.up_proj.weight", INTERMEDIATE, HIDDEN)
        tensor(f"{block}.ffn_down.weight", f"{module}.mlp.down_proj.weight", HIDDEN, INTERMEDIATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("gguf")
    expected = write_gguf(folder / "tiny.gguf")
    (folder / "hf").mkdir()
    convert_gguf(folder / "tiny.gguf", folder / "hf")
    return folder / "hf", expected


def test_weights_are_the_checkpoints_in_bfloat16(converted: tuple[Path, dict[str, np.ndarray]]) -> None:
    folder, expected = converted
    weights = load_file(folder / "model.safetensors")
    assert set(weights) == set(expected)
    for name, values in expected.items():
        assert torch.equal(weights[name], torch.from_numpy(values).to(torch.bfloat16)), name


def test_configuration_is_one_the_engine_reads(converted: tuple[Path, dict[str, np.ndarray]]) -> None:
    folder, _ = converted
    config = LlamaConfig.from_folder(open_folder(folder))
    assert (config.hidden_size, config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (16, 2, 2, 1, 8)
    assert (config.rms_norm_eps, config.rope_theta, config.max_positions) == (1e-5, 10000.0, 64)
    assert config.tie_word_embeddings
    assert config.eos_token_ids == {2}
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2


def test_tokenizer_splits_digits_and_keeps_special_tokens(converted: tuple[Path, dict[str, np.ndarray]]) -> None:
    folder, _ = converted
    tokenizer = TextTokenizer.from_folder(folder)
    letter = {character: 3 + byte for character, byte in BYTE_OF.items()}
    merged_letters = 3 + 256 + 1
    # "ab" merges, "12" would if the file's pre-tokenizer did not split digits one by one
    assert tokenizer.encode("ab12", add_special_tokens=True) == (merged_letters, letter["1"], letter["2"])
    assert tokenizer.encode_chat([{"role": "user", "content": "ab"}]) == (1, merged_letters, 2)
    assert tokenizer.token_bytes(2) == b""


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"architecture": "qwen2"}, "only llama with gpt2"), ({"pre": "invented"}, "'invented' is not converted")],
)
def test_other_models_are_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    write_gguf(tmp_path / "other.gguf", **changes)
    with pytest.raises(CheckpointError, match=message):
        convert_gguf(tmp_path / "other.gguf", tmp_path)


def test_what_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model" * 100)
    with pytest.raises(CheckpointError, match="cannot be read as GGUF"):
        convert_gguf(tmp_path / "bad.gguf", tmp_path)
