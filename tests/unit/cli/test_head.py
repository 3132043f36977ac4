from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breakeven.checkpoints.folder import open_folder
from breakeven.cli import app
from breakeven.errors import CheckpointError

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
    "vocab_size": 64,
}


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


def test_a_head_is_written_and_said_to_be_untrained(target: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["head", "--target", "target", "--out", "out/head", "--seed", "3", "--draft-vocab", "8"])
    assert done.exit_code == 0, done.output
    assert "forced acceptance" in done.output
    assert open_folder(tmp_path / "out" / "head").tensors["lm_head.weight"].shape == (8, 16)


def test_an_existing_folder_is_left_alone(target: Path) -> None:
    done = CliRunner().invoke(app, ["head", "--target", "target", "--out", "target"])
    assert isinstance(done.exception, CheckpointError)
    assert "is there already" in str(done.exception)
    assert json.loads((target / "config.json").read_text()) == CONFIG
