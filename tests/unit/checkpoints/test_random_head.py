from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.checkpoints.conftest import CONFIG

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.checkpoints.pairing import check_eagle3_pair
from breakeven.checkpoints.random_head import auxiliary_layers, default_draft_vocab_size, ensure_random_head, write_random_head
from breakeven.errors import CheckpointError

MakeFolder = Callable[..., Path]


def values(folder: ModelFolder, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    info = folder.tensors[name]
    raw = info.file.read_bytes()[info.begin : info.end]
    if info.dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(info.shape)
    return np.frombuffer(raw, {"I64": np.int64, "BOOL": np.bool_}[info.dtype]).astype(np.float64).reshape(info.shape)


def test_shapes_values_and_maps(make_folder: MakeFolder, tmp_path: Path) -> None:
    target = open_folder(make_folder())
    write_random_head(target, tmp_path / "deep" / "head", seed=3)
    head = open_folder(tmp_path / "deep" / "head")
    check_eagle3_pair(target, head)
    shapes = {name: info.shape for name, info in head.tensors.items()}
    assert shapes["fc.weight"] == (16, 48)
    assert shapes["midlayer.self_attn.q_proj.weight"] == (16, 32)
    assert shapes["midlayer.self_attn.k_proj.weight"] == shapes["midlayer.self_attn.v_proj.weight"] == (8, 32)
    assert shapes["midlayer.mlp.down_proj.weight"] == (16, 32)
    assert shapes["lm_head.weight"] == (32, 16)
    assert "embed_tokens.weight" not in shapes
    assert abs(values(head, "fc.weight").std() - 0.02) < 0.002
    assert abs(values(head, "fc.weight").mean()) < 0.002
    assert (values(head, "norm.weight") == 1).all()
    target_ids = values(head, "d2t") + np.arange(32)
    assert (np.diff(target_ids) > 0).all()
    assert 0 <= target_ids[0] < target_ids[-1] < 64
    assert (np.flatnonzero(values(head, "t2d")) == target_ids).all()
    assert all(info.begin % 8 == 0 for info in head.tensors.values())


def test_the_configuration_speaks_to_both_engines(make_folder: MakeFolder, tmp_path: Path) -> None:
    write_random_head(open_folder(make_folder(config=CONFIG | {"num_hidden_layers": 61})), tmp_path / "head")
    config = open_folder(tmp_path / "head").config
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 30, 58]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 29, 57]
    assert config["num_hidden_layers"] == 1
    assert config["draft_vocab_size"] == 32
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 5e4
    assert config["max_position_embeddings"] == 128
    assert not any(config[key] for key in ("norm_before_residual", "attention_bias", "mlp_bias", "tie_word_embeddings"))


def test_a_full_vocabulary_has_no_map(make_folder: MakeFolder, tmp_path: Path) -> None:
    write_random_head(open_folder(make_folder()), tmp_path / "head", draft_vocab_size=64)
    assert not {"d2t", "t2d"} & set(open_folder(tmp_path / "head").tensors)


def test_seeds_decide_the_weights(make_folder: MakeFolder, tmp_path: Path) -> None:
    target = open_folder(make_folder())
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_random_head(target, tmp_path / name, seed=seed)
    first, same, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert first == same != other


def test_nested_and_latent_targets(make_folder: MakeFolder, tmp_path: Path) -> None:
    latent = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"} | {
        "kv_lora_rank": 4,
        "rope_parameters": 3,
    }
    write_random_head(open_folder(make_folder("k", config={"text_config": latent})), tmp_path / "head")
    head = open_folder(tmp_path / "head")
    assert head.tensors["midlayer.self_attn.q_proj.weight"].shape == (4 * 128, 32)
    assert head.tensors["midlayer.self_attn.k_proj.weight"].shape == (4 * 128, 32)
    assert head.config["head_dim"] == 128


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_size": None}, "hidden_size is None"),
        ({"vocab_size": "64"}, "vocab_size is '64'"),
        ({"intermediate_size": True}, "intermediate_size is True"),
        ({"num_attention_heads": 1 << 40}, "num_attention_heads is"),
        ({"num_hidden_layers": 3}, "expected at least 4"),
        ({"num_key_value_heads": 3}, "4 query heads, 3 key/value heads"),
        ({"head_dim": 3}, "an even head_dim"),
    ],
)
def test_targets_that_have_no_head(change: dict[str, object], complaint: str, make_folder: MakeFolder, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        write_random_head(open_folder(make_folder(config=CONFIG | change)), tmp_path / "head")
    assert not list(tmp_path.glob("*head*"))


def test_nothing_half_done_is_left(make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = open_folder(make_folder())
    write_random_head(target, tmp_path / "head")
    with pytest.raises(CheckpointError, match="is there already"):
        write_random_head(target, tmp_path / "head")
    with pytest.raises(CheckpointError, match="draft vocabulary of 65 tokens; expected 1 to the target's 64"):
        write_random_head(target, tmp_path / "other", draft_vocab_size=65)

    def full_disk(_path: Path, *_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(CheckpointError, match=r"other: cannot be written \(No space left on device\)"):
        write_random_head(target, tmp_path / "other")
    assert not list(tmp_path.glob("*other*"))


def test_the_cached_head_is_written_once(make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    target = open_folder(make_folder())
    first = ensure_random_head(target)
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert ensure_random_head(target) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    assert len({first, ensure_random_head(target, seed=1), ensure_random_head(target, draft_vocab_size=8)}) == 3
    (first / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="too short"):
        ensure_random_head(target)


def test_sizes() -> None:
    assert [default_draft_vocab_size(size) for size in (49_152, 128_256, 163_840, 64, 2)] == [16_384, 32_768, 32_768, 32, 1]
    assert auxiliary_layers(30) == (2, 15, 27)
    for num_layers in range(4, 200):
        low, middle, high = auxiliary_layers(num_layers)
        assert 1 <= low < middle < high < num_layers
    with pytest.raises(ValueError, match="at least 4"):
        auxiliary_layers(3)


def test_the_written_configuration_is_plain_json(make_folder: MakeFolder, tmp_path: Path) -> None:
    write_random_head(open_folder(make_folder()), tmp_path / "head")
    assert json.loads((tmp_path / "head" / "config.json").read_text())["model_type"] == "llama"
