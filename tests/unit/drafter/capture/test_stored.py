from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.capture.store_format import planned_manifest
from breakeven.drafter.capture.stored import StoredStates
from breakeven.drafter.capture.storing import store_states
from breakeven.errors import DataError, StoreError

SHARD = "states-00001.safetensors"


@pytest.fixture
def stored(make_target, random_samples, tmp_path):
    """A folder of three shards, and its samples."""
    target, samples = make_target(), random_samples(9, 40, 1, 17, 33, 25)
    manifest = planned_manifest(
        samples,
        target="tiny",
        fingerprint="f",
        architecture="LlamaForCausalLM",
        layers=(1, 2, 3),
        dtype=torch.float32,
        hidden_size=32,
        vocab_size=97,
        num_layers=4,
        shard_bytes=52 * 512,
    )
    store_states(tmp_path / "out", manifest, samples, lambda: Capture.from_folder(target, (1, 2, 3), device="cpu"))
    assert len(manifest.shards) == 3
    return tmp_path / "out", samples


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def test_a_flipped_bit_is_found_when_its_shard_is_touched_and_mended_by_the_same_command(stored):
    folder, samples = stored
    flip_a_bit(folder / SHARD)
    states = StoredStates(folder)
    states.read(0)
    with pytest.raises(StoreError, match=rf"{SHARD}: damaged \(its SHA-256.*remove the file and run the same"):
        states.read(1)
    with pytest.raises(StoreError, match=SHARD):
        StoredStates(folder).capture(samples)
    # without hashing it is not noticed: the flag does what it says
    assert len(StoredStates(folder, verify=False).read(1).token_ids) > 0


def test_a_flipped_bit_in_the_head_is_found(stored):
    folder, _ = stored
    flip_a_bit(folder / "target.safetensors")
    with pytest.raises(StoreError, match=r"target\.safetensors: damaged"):
        StoredStates(folder).head_weight()


def test_a_shard_that_was_cut_is_named(stored):
    folder, _ = stored
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-10])
    with pytest.raises(StoreError, match=rf"{SHARD}: damaged \(\d+ bytes instead of"):
        StoredStates(folder).read(1)


def test_a_shard_that_is_gone_makes_the_capture_unfinished(stored):
    folder, _ = stored
    (folder / SHARD).unlink()
    with pytest.raises(StoreError, match="2 of 3 shards are finished"):
        StoredStates(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"auxiliary": torch.zeros(49, 96)},
        {"last": torch.zeros(50, 32, dtype=torch.float64)},
        {"starts": torch.tensor([0, 60, 50])},
        {"keys": torch.zeros(1, 16, dtype=torch.uint8)},
    ],
    ids=["rows", "dtype", "starts", "keys"],
)
def test_tensors_of_another_shape_are_refused(stored, change):
    folder, samples = stored
    tensors = load_file(folder / SHARD)
    assert tensors["starts"].tolist() == [0, 17, 50]
    save_file(tensors | change, folder / SHARD)
    lines = (folder / "finished.jsonl").read_text().splitlines()
    size = (folder / SHARD).stat().st_size
    lines = [json.dumps(json.loads(line) | ({"num_bytes": size} if SHARD in line else {})) for line in lines]
    (folder / "finished.jsonl").write_text("\n".join(lines) + "\n")
    states = StoredStates(folder, verify=False)
    with pytest.raises(StoreError, match=SHARD):  # noqa: PT012 - one of the two ways of reading touches the tensor
        states.read(1)
        states.capture(samples)


def test_a_sample_that_is_not_stored_is_named(stored, random_samples):
    folder, _ = stored
    (stranger,) = random_samples(9, seed=99)
    with pytest.raises(DataError, match=r"sample-0 \(9 tokens\) is not among the 6 stored"):
        StoredStates(folder).capture([stranger])


def test_the_loss_mask_belongs_to_a_sample(stored):
    from dataclasses import replace

    folder, samples = stored
    flipped = replace(samples[0], loss_mask=tuple(not marked for marked in samples[0].loss_mask))
    with pytest.raises(DataError, match="not among"):
        StoredStates(folder).capture([flipped])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "not a manifest"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_manifest_that_is_none_is_named(stored, text, message):
    folder, _ = stored
    (folder / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        StoredStates(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema 2, this version reads 1; update"),
        ({"schema_version": 0}, "schema 0.*capture the states again"),
        ({"hidden_size": "32"}, "damaged"),
        ({"hidden_size": -1}, "damaged"),
        ({"dtype": "int4"}, "damaged"),
        ({"layers": [1, 2]}, "damaged"),
        ({"shards": [[0, 1]]}, "damaged"),
        ({"shards": 5}, "damaged"),
    ],
)
def test_a_damaged_manifest_is_named(stored, change, message):
    folder, _ = stored
    found = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(found | change))
    with pytest.raises(StoreError, match=message):
        StoredStates(folder)


def test_lines_that_name_other_files_are_refused(stored):
    folder, _ = stored
    with (folder / "finished.jsonl").open("a") as opened:
        opened.write(json.dumps({"file": "../../etc/passwd", "num_bytes": 5, "sha256": "x"}) + "\n")
    with pytest.raises(StoreError, match=r"finished\.jsonl, line 5: names no file of this folder"):
        StoredStates(folder)


def test_a_folder_without_a_manifest_is_no_store(tmp_path):
    with pytest.raises(StoreError, match="expected a folder that breakeven data states wrote"):
        StoredStates(tmp_path)
