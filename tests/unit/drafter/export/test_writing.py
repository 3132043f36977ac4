"""The exported folder: what each engine looks for is where it looks, and reading it gives the head that was written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.export.provenance import read_provenance, tensor_hashes
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.export.writing import write_head
from breakeven.errors import CheckpointError

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture
def target(make_target):
    return open_folder(make_target(max_position_embeddings=512, eos_token_id=[2, 5]))


def export(head, target, out: Path, **options):
    return write_head(head.config, head.weights, target, out, **options)


def test_one_folder_for_both_engines(make_head, target, tmp_path):
    head = read_head(make_head(rope_theta=50000.0), target)
    exported = export(head, target, tmp_path / "out", training={"data_sha256": "ab" * 32})
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config == exported.config
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    # vLLM reads the first as layer inputs, SGLang the second as layer outputs
    assert config[IDS] == [1, 2, 3]
    assert config["eagle_config"][IDS] == [0, 1, 2]
    assert config["draft_vocab_size"] == 32
    assert (config["rope_theta"], config["rope_scaling"]) == (50000.0, None)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 50000.0}
    assert config["max_position_embeddings"] == 512  # the target's: SGLang refuses less
    assert not config["tie_word_embeddings"]
    assert config["norm_before_residual"] is False
    assert config["eos_token_id"] == [2, 5]
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert "embed_tokens.weight" not in tensors
    assert tensors["lm_head.weight"].shape == (32, 32)
    assert tensors["d2t"].dtype == torch.int64
    assert (tensors["d2t"] + torch.arange(32)).tolist() == list(range(0, 96, 3))
    assert tensors["t2d"].dtype == torch.bool
    assert tensors["t2d"].nonzero().flatten().tolist() == list(range(0, 96, 3))
    assert {tensor.dtype for name, tensor in tensors.items() if name not in ("d2t", "t2d")} == {torch.bfloat16}


@pytest.mark.parametrize(
    "options", [{}, {"fc_norm": True, "norm_output": True}, {"norm_before_fc": True}], ids=["3", "3.1", "norm before fc"]
)
def test_reading_gives_the_head_that_was_written(make_head, target, tmp_path, options):
    extra = {f"fc_norm.{index}.weight": torch.full((32,), 0.5 + index) for index in range(3)} if "fc_norm" in options else {}
    head = read_head(make_head(extra=extra, **options), target)
    export(head, target, tmp_path / "out", dtype=torch.float32)
    again = read_head(tmp_path / "out", target)
    assert again.source_format == "breakeven or vLLM"
    assert dataclasses.replace(again.config, auxiliary_source="", shape=head.config.shape) == dataclasses.replace(
        head.config, auxiliary_source=""
    )
    for name in type(head.weights).__slots__:
        mine, other = getattr(head.weights, name), getattr(again.weights, name)
        assert (mine is None) == (other is None)
        assert mine is None or torch.equal(mine, other), name


@pytest.mark.parametrize(("engines", "present", "absent"), [("vllm", IDS, "eagle_config"), ("sglang", "eagle_config", IDS)])
def test_one_engine_gets_its_own_key_only(make_head, target, tmp_path, engines, present, absent):
    exported = export(read_head(make_head(), target), target, tmp_path / "out", engines=engines)
    assert present in exported.config
    assert absent not in exported.config
    assert read_head(tmp_path / "out", target).config.auxiliary_layers == (1, 2, 3)


@pytest.mark.parametrize(
    "rope",
    [
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {"type": "linear", "factor": 2.0},
    ],
    ids=["llama3", "yarn", "linear, old spelling"],
)
def test_scaled_rope_stands_there_in_both_spellings_and_transformers_reads_it(make_head, target, tmp_path, rope):
    from transformers import LlamaConfig

    exported = export(read_head(make_head(rope_scaling=rope, rope_theta=5e5), target), target, tmp_path / "out")
    kind = rope.get("rope_type") or rope["type"]
    assert exported.config["rope_scaling"]["rope_type"] == kind
    assert exported.config["rope_parameters"] == exported.config["rope_scaling"] | {"rope_theta": 5e5}
    theirs = LlamaConfig.from_pretrained(tmp_path / "out").rope_parameters
    assert theirs["rope_theta"] == 5e5
    assert {key: theirs[key] for key in exported.config["rope_scaling"]} == exported.config["rope_scaling"]


def test_equal_vocabularies_have_no_map(make_head, target, tmp_path):
    export(read_head(make_head(draft_vocab_size=97, drop=("d2t", "t2d")), target), target, tmp_path / "out")
    assert not {"d2t", "t2d"} & set(load_file(tmp_path / "out/model.safetensors"))
    assert read_head(tmp_path / "out", target).weights.target_ids.tolist() == list(range(97))


def test_where_it_comes_from_is_written_beside_it(make_head, make_target, tmp_path):
    target = open_folder(make_target("quantized", quantization_config={"quant_method": "compressed-tensors"}))
    exported = export(read_head(make_head(), target), target, tmp_path / "out", training={"data_sha256": "00"})
    found = read_provenance(tmp_path / "out")
    assert found == exported.provenance
    assert found is not None
    assert found.target.quantization == "compressed-tensors"
    assert len(found.target.fingerprint) == 16
    assert found.target.template_sha256 is None  # this target has no tokenizer
    assert found.training == {"data_sha256": "00"}
    assert found.metrics is None
    assert found.tensor_sha256 == tensor_hashes(load_file(tmp_path / "out/model.safetensors"))
    assert read_provenance(make_head("other")) is None


@pytest.mark.parametrize("content", ["", "[]", '{"schema_version": 99, "surprise": 1}'])
def test_a_provenance_file_of_somebody_else_is_refused(make_head, content):
    folder = make_head()
    (folder / "provenance.json").write_text(content)
    with pytest.raises(CheckpointError, match="not the provenance of a head"):
        read_provenance(folder)


def test_what_an_engine_cannot_express_is_refused(make_head, target, tmp_path):
    own = read_head(make_head(own_embedding=True), target)
    with pytest.raises(CheckpointError, match="SGLang always uses the target's"):
        export(own, target, tmp_path / "out")
    export(own, target, tmp_path / "vllm", engines="vllm")
    assert "embed_tokens.weight" in load_file(tmp_path / "vllm/model.safetensors")
    swapped = read_head(make_head("swapped", **{IDS: [3, 2, 1]}), target)
    with pytest.raises(CheckpointError, match="not in ascending order"):
        export(swapped, target, tmp_path / "out")
    low = read_head(make_head("low", **{IDS: [0, 1, 2]}), target)
    with pytest.raises(CheckpointError, match="layer outputs cannot name"):
        export(low, target, tmp_path / "out", engines="sglang")
    broken = dataclasses.replace(own.weights, embed=None, norm=torch.full((32,), torch.nan))
    with pytest.raises(CheckpointError, match=r"norm\.weight holds NaN"):
        write_head(own.config, broken, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_only_some_releases_read_is_said(make_head, make_target, tmp_path):
    kimi = open_folder(make_target("kimi", num_hidden_layers=8, model_type="kimi_k2"))
    extra = {f"fc_norm.{index}.weight": torch.ones(32) for index in range(3)}
    head = read_head(make_head(extra=extra, fc_norm=True, **{IDS: [3, 4, 5]}), kimi)
    doubts = export(head, kimi, tmp_path / "out").provenance.doubts
    assert any("EAGLE-3.1" in doubt for doubt in doubts)
    assert any("[2, 3, 4]" in doubt and "0.5.13" in doubt for doubt in doubts)
    usual = read_head(make_head("usual", **{IDS: [2, 4, 5]}), kimi)
    assert export(usual, kimi, tmp_path / "exported").provenance.doubts == ()


def test_nothing_is_overwritten_and_nothing_is_left_half_written(make_head, target, tmp_path, monkeypatch):
    head = read_head(make_head(), target)
    export(head, target, tmp_path / "out")
    with pytest.raises(CheckpointError, match="is there already"):
        export(head, target, tmp_path / "out")

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("breakeven.drafter.export.writing.save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        export(head, target, tmp_path / "second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head", "out", "target"]
