from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "rope_theta": 5e4,
    "max_position_embeddings": 128,
}


def safetensors_bytes(header: Mapping[str, object] | bytes, data: bytes) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data


def two_tensors() -> bytes:
    return safetensors_bytes(
        {
            "__metadata__": {"format": "pt"},
            "b.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]},
            "a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
        },
        bytes(range(32)),
    )


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "model", config: object = CONFIG, weights: bytes | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes(two_tensors() if weights is None else weights)
        return folder

    return make
