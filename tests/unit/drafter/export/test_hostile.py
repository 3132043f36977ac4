"""Configurations from strangers: whatever stands in them, reading a head ends with a head or with one error of ours."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.export.exporting import export_folder
from breakeven.drafter.export.provenance import read_provenance
from breakeven.drafter.export.reading import read_head
from breakeven.errors import BreakevenError, CheckpointError

KEYS = (
    "architectures",
    "attention_bias",
    "draft_vocab_size",
    "eagle_aux_hidden_state_layer_ids",
    "eagle_config",
    "fc_norm",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "speculators_config",
    "speculators_model_type",
    "target_hidden_size",
    "tie_word_embeddings",
    "transformer_layer_config",
    "vocab_size",
)
ODD = st.recursive(
    st.sampled_from(
        [None, True, False, -1, 0, 1, 3, 97, 2**70, 1.5, float("nan"), float("inf"), "", "eagle3", "\x1b[31m", "default"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(KEYS), ODD, min_size=1, max_size=3))
def test_odd_configurations_end_in_one_error(hostile, changes):
    folder, target, sound = hostile
    nested = {
        "speculators_model_type": "eagle3",
        "transformer_layer_config": sound | changes,
        "draft_vocab_size": sound["draft_vocab_size"],
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    }
    for config in (sound | changes, nested, nested | changes):
        (folder / "config.json").write_text(json.dumps(config))
        with contextlib.suppress(BreakevenError):
            read_head(folder, target)


@pytest.fixture
def hostile(make_target, make_head):
    folder = make_head()
    return folder, open_folder(make_target()), json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": "32"}, {"text_config": {"hidden_size": 32}}, {"vocab_size": True}])
def test_a_target_without_its_sizes(make_target, make_head, sizes):
    folder = make_target("odd")
    config = json.loads((folder / "config.json").read_text())
    for key in ("hidden_size", "vocab_size") if not sizes else ():
        del config[key]
    (folder / "config.json").write_text(json.dumps(config | sizes))
    with pytest.raises(CheckpointError, match="expected positive whole numbers"):
        read_head(make_head(), open_folder(folder))


def test_a_huge_provenance_is_not_read(make_head, monkeypatch):
    folder = make_head()
    (folder / "provenance.json").write_text("{}" + " " * 100)
    monkeypatch.setattr("breakeven.drafter.export.provenance.MAX_BYTES", 50)
    with pytest.raises(CheckpointError, match="expected at most 50"):
        read_provenance(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "provenance.json"])
def test_pipes_and_links_out_of_a_folder_are_not_read(make_target, make_head, tmp_path, name):
    """An export waited for ever at a pipe in the place of the target's tokenizer."""
    target, head = make_target(), make_head()
    place = (target if name == "tokenizer.json" else head) / name
    secret = tmp_path / "secret"
    secret.write_text("{}")
    place.symlink_to(secret)
    for kind in ("link", "pipe"):
        with pytest.raises(CheckpointError, match="outside" if kind == "link" else "not a regular file"):
            export_folder(head, target, tmp_path / "out", engines="both", dtype="float32")
        place.unlink()
        os.mkfifo(place)
    assert not (tmp_path / "out").exists()


def test_weights_that_are_no_numbers_are_refused(make_target, make_head):
    """Such a head was judged, with accept length 1.00, as one that is wired wrongly."""
    folder, target = make_head(), open_folder(make_target())
    tensors = load_file(folder / "model.safetensors")
    for bad in (float("nan"), float("inf")):
        tensors["lm_head.weight"][3, 5] = bad
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"lm_head\.weight holds NaN or infinity"):
            read_head(folder, target)
    # numbers whose sum is too large are numbers
    tensors["lm_head.weight"][:] = 3e38
    save_file(tensors, folder / "model.safetensors")
    read_head(folder, target)
