"""Folders as each trainer writes them, read into the one model: the same weights, the same function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.export.writing import write_head
from breakeven.errors import CheckpointError

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture
def target(make_target):
    return open_folder(make_target())


def rewrite(folder: Path, change) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(change(config)))
    return folder


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def specforge(make_head) -> Path:
    folder = make_head("specforge", eagle_config={IDS: [0, 1, 2], "use_aux_hidden_state": True})
    return rewrite(folder, lambda config: without(config, IDS))


def model_optimizer(make_head) -> Path:
    folder = make_head("modelopt", spelling="layers.0", eagle_config={IDS: [0, 1, 2]}, drop=("t2d",))
    return rewrite(folder, lambda config: without(config, IDS) | {"architectures": ["LlamaForCausalLM"]})


def torchspec(make_head) -> Path:
    return rewrite(make_head("torchspec", eagle_config={IDS: [0, 1, 2]}, own_embedding=True), lambda config: without(config, IDS))


def original_eagle(make_head) -> Path:
    # no ids: layers 2, n // 2 and n - 3, which of four layers are 2, 2 and 1, so this target is deeper
    return rewrite(make_head("eagle"), lambda config: without(config, IDS))


def speculators(make_head, **changes: Any) -> Path:
    folder = make_head("speculators", spelling="layers.0")
    own = {"draft_vocab_size", "architectures", IDS}

    def nest(config: dict[str, Any]) -> dict[str, Any]:
        return {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "target"}},
            "transformer_layer_config": without(config, *own) | {"model_type": "llama"},
            "draft_vocab_size": config["draft_vocab_size"],
            "norm_before_residual": False,
            IDS: [1, 2, 3],
        } | changes

    return rewrite(folder, nest)


@pytest.mark.parametrize(
    ("make", "source"),
    [
        (specforge, "SpecForge or TorchSpec"),
        (model_optimizer, "Model-Optimizer or TorchSpec"),
        (speculators, "speculators"),
        (lambda make_head: make_head("ours"), "breakeven or vLLM"),
    ],
)
def test_every_layout_is_the_same_head(make_head, target, make, source):
    ours = read_head(make_head("plain"), target)
    theirs = read_head(make(make_head), target)
    assert theirs.source_format == source
    assert theirs.config.auxiliary_layers == (1, 2, 3)
    for name in type(ours.weights).__slots__:
        mine, other = getattr(ours.weights, name), getattr(theirs.weights, name)
        assert (mine is None) == (other is None)
        assert mine is None or torch.equal(mine, other), name


def test_original_eagle_takes_its_own_default_layers(make_target, make_head):
    deep = open_folder(make_target("deep", num_hidden_layers=8))
    head = read_head(original_eagle(make_head), deep)
    assert head.source_format == "EAGLE or SpecForge"
    assert head.config.auxiliary_layers == (2, 4, 5)
    assert "2, n // 2 and n - 3" in head.notes[0]


def test_a_head_for_a_target_of_another_architecture_is_read(make_target, make_head):
    folder = make_target("wrapped")
    rewrite(folder, lambda config: {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": config})
    assert read_head(make_head(), open_folder(folder)).config.auxiliary_layers == (1, 2, 3)


def test_the_targets_own_embedding_is_left_out_and_another_is_kept(make_head, target):
    theirs = load_file(target.path / "model.safetensors")["model.embed_tokens.weight"]
    copied = make_head("copied", extra={"embed_tokens.weight": theirs.bfloat16()})
    head = read_head(copied, target)
    assert head.weights.embed is None
    assert "copy of the target's" in head.notes[-1]
    kept = read_head(torchspec(make_head), target)
    assert kept.weights.embed is not None
    assert "100% of its rows differ" in kept.notes[-1]


def test_the_last_hidden_state_among_speculators_ids_is_left_out(make_head, target):
    head = read_head(speculators(make_head, **{IDS: [1, 2, 3, 4]}), target)
    assert head.config.auxiliary_layers == (1, 2, 3)
    assert "layer id 4 names the last hidden state" in head.notes[0]


def test_norm_output_comes_with_its_doubt(make_head, target):
    head = read_head(make_head(norm_output=True), target)
    assert head.config.norm_output
    assert "SpecForge writes it for heads that were trained with the state before the norm" in head.notes[-1]


def add_tensor(name: str):
    def change(make_head) -> Path:
        return make_head("odd", extra={name: torch.ones(3)})

    return change


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda make_head: speculators(make_head, speculators_model_type="dflash"), "dflash"),
        (lambda make_head: speculators(make_head, transformer_layer_config=None), "transformer_layer_config is None"),
        (lambda make_head: speculators(make_head, norm_before_fc=True), "input_norm.weight"),
        (lambda make_head: speculators(make_head, target_hidden_size=64), "target_hidden_size is 64"),
        (lambda make_head: speculators(make_head, **{IDS: [1, 2, 3, 3]}), "three"),
        (add_tensor("layers.0.self_attn.kv_a_proj_with_mqa.weight"), "latent attention"),
        (add_tensor("layers.1.mlp.up_proj.weight"), "more than one decoder layer"),
        (add_tensor("input_norm.weight"), "no place for: 'input_norm.weight'"),
        (add_tensor("mask_hidden"), "P-EAGLE"),
        (add_tensor("midlayer.self_attn.q_proj.bias"), "biases"),
        (lambda make_head: make_head(rope_scaling={"rope_type": "longrope", "factor": 2.0}), "longrope"),
        (
            lambda make_head: make_head(eagle_config={IDS: [1, 2, 3]}),
            r"they name different states. Expected \[0, 1, 2\] there",
        ),
        (lambda make_head: make_head(extra={"t2d": torch.arange(97) % 3 == 1}), "t2d and d2t disagree on 64 of 97"),
    ],
)
def test_what_cannot_be_expressed_is_named(make_head, target, make, message):
    with pytest.raises(CheckpointError, match=message):
        read_head(make(make_head), target)


def test_a_pickle_is_not_loaded_and_the_way_out_is_said(make_head, target):
    folder = make_head()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin.*can run code.*weights_only=True"):
        read_head(folder, target)


def test_the_advice_about_pickles_works(make_head, target, monkeypatch):
    """What the message says is run word for word."""
    import re
    import shlex
    import subprocess
    import sys

    folder = make_head()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as caught:
        read_head(folder, target)
    command = re.search(r"convert it once: (python -c .*)", str(caught.value))
    assert command is not None
    argv = shlex.split(command[1])
    subprocess.run([sys.executable, *argv[1:]], cwd=folder, check=True, timeout=120)
    again = load_file(folder / "model.safetensors")
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    save_file(tensors, folder / "model.safetensors")
    assert read_head(folder, target).config.auxiliary_layers == (1, 2, 3)


def test_what_speculators_leaves_out_means_true(make_head, target, tmp_path):
    said = read_head(rewrite(speculators(make_head), lambda config: without(config, "norm_before_residual")), target)
    assert said.config.norm_before_residual
    assert "means true" in said.notes[0]
    with pytest.raises(CheckpointError, match="which SGLang implements in no release"):
        write_head(said.config, said.weights, target, tmp_path / "out")
    written = write_head(said.config, said.weights, target, tmp_path / "out", engines="vllm")
    assert written.config["norm_before_residual"] is True
    assert read_head(tmp_path / "out", target).config.norm_before_residual
