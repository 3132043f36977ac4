"""`breakeven export` from folder to folder."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from breakeven.checkpoints.folder import open_folder
from breakeven.cli import app
from breakeven.drafter.export.provenance import read_provenance
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.export.writing import write_head
from breakeven.errors import CheckpointError

IDS = "eagle_aux_hidden_state_layer_ids"


def export(*arguments: object):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_a_folder_for_both_engines_as_json(make_target, make_head, tmp_path):
    target = make_target()
    head = make_head(spelling="layers.0", eagle_config={IDS: [0, 1, 2]}, **{IDS: None})
    done = export("--draft", head, "--target", target, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    written = json.loads(done.stdout)
    assert written["source_format"] == "Model-Optimizer or TorchSpec"
    assert written["auxiliary_layers"] == written["config"][IDS] == [1, 2, 3]
    assert written["config"]["eagle_config"][IDS] == [0, 1, 2]
    assert written["bytes"] == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert written["provenance"]["target"]["name"] == "target"


def test_what_was_known_of_its_training_stays_with_it(make_target, make_head, tmp_path):
    target = open_folder(make_target())
    head = read_head(make_head(), target)
    write_head(head.config, head.weights, target, tmp_path / "first", training={"data_sha256": "ab"})
    done = export("--draft", tmp_path / "first", "--target", target.path, "--out", tmp_path / "second", "--for", "vllm")
    assert done.exit_code == 0, done.output
    assert "written for vllm in bfloat16" in done.stdout
    assert "inputs of layers 1, 2, 3" in done.stdout
    provenance = read_provenance(tmp_path / "second")
    assert provenance is not None
    assert provenance.training == {"data_sha256": "ab"}
    assert provenance.source_format == "breakeven"


def test_what_cannot_be_expressed_is_one_message(make_target, make_head, tmp_path):
    done = export("--draft", make_head(own_embedding=True), "--target", make_target(), "--out", tmp_path / "out")
    assert isinstance(done.exception, CheckpointError)
    assert "SGLang always uses the target's" in str(done.exception)
    assert export("--draft", "x", "--target", "y", "--out", "z", "--for", "trtllm").exit_code == 2
