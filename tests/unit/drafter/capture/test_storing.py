from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch

from breakeven.checkpoints.folder import fingerprint, open_folder
from breakeven.drafter.capture import storing
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.capture.store_format import MANIFEST, planned_manifest
from breakeven.drafter.capture.stored import StoredStates
from breakeven.drafter.capture.storing import check_space, store_states
from breakeven.drafter.folder_lock import LOCK
from breakeven.errors import DataError, StoreError
from breakeven.whole import UNFINISHED

LENGTHS = (9, 40, 1, 17, 33, 25, 12)
# Fifty tokens a shard in float32, twice that in bfloat16.
SHARD_BYTES = 50 * 4 * 32 * 4
FIELDS = ("token_ids", "positions", "samples", "starts", "loss_mask", "auxiliary", "last")


def planned(target, samples, **changes):
    arguments = {
        "target": "tiny",
        "fingerprint": fingerprint(open_folder(target)),
        "architecture": "LlamaForCausalLM",
        "layers": (1, 2, 3),
        "dtype": torch.float32,
        "hidden_size": 32,
        "vocab_size": 97,
        "num_layers": 4,
        "shard_bytes": SHARD_BYTES,
    }
    return planned_manifest(samples, **(arguments | changes))


def store(folder, target, samples, **changes):
    manifest = planned(target, samples, **changes)
    dtype = changes.get("dtype", torch.float32)
    return store_states(folder, manifest, samples, lambda: Capture.from_folder(target, manifest.layers, device="cpu", dtype=dtype))


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != LOCK}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_stored_states_are_those_of_the_target_bit_by_bit(make_target, random_samples, tmp_path, dtype, tied):
    target, samples = make_target(tie_word_embeddings=tied), random_samples(*LENGTHS)
    assert store(tmp_path / "out", target, samples, dtype=dtype) > 1
    stored, capture = StoredStates(tmp_path / "out"), Capture.from_folder(target, (1, 2, 3), device="cpu", dtype=dtype)
    # shard by shard, as captured
    for (first, end, _), states in zip(stored.manifest.shards, stored, strict=True):
        expected = capture.capture(samples[first:end])
        for field in FIELDS:
            assert torch.equal(getattr(states, field), getattr(expected, field)), field
    # any samples in any order: the rows are those of the shards
    mixed = [samples[index] for index in (6, 0, 3, 1, 3)]
    states, expected = stored.capture(mixed), capture.capture(mixed)
    for field in FIELDS:
        mine, other = getattr(states, field), getattr(expected, field)
        assert mine.dtype == other.dtype
        torch.testing.assert_close(
            mine, other, rtol=1e-4 if dtype == torch.float32 else 0.1, atol=1e-4 if dtype == torch.float32 else 0.1
        )
    assert torch.equal(stored.embed_weight, capture.embed_weight)
    assert torch.equal(stored.head_weight(), capture.head_weight())
    rows = torch.tensor([4, 90])
    assert torch.equal(stored.head_weight(rows), capture.head_weight(rows))
    for name in ("hidden_size", "vocab_size", "num_layers", "dtype", "layers"):
        assert getattr(stored, name) == getattr(capture, name)


def test_the_size_is_known_before(make_target, random_samples, tmp_path):
    target, samples = make_target(tie_word_embeddings=False), random_samples(*LENGTHS)
    manifest = planned(target, samples)
    assert manifest.state_bytes == sum(LENGTHS) * 4 * 32 * 4
    needed, free = check_space(tmp_path / "out", manifest)
    assert not (tmp_path / "out").exists()
    store(tmp_path / "out", target, samples)
    taken = sum(len(content) for name, content in files_of(tmp_path / "out").items() if name.endswith(".safetensors"))
    assert manifest.state_bytes < taken <= needed < taken + len(manifest.shards) * 1100
    assert free > needed
    assert check_space(tmp_path / "out", manifest)[0] == 0


def test_too_little_room_is_said_before_anything_is_written(make_target, random_samples, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(StoreError, match=r"137 tokens x 4 x 32 x float32.*1 kB that are free"):
        check_space(tmp_path / "out", planned(make_target(), random_samples(*LENGTHS)))
    assert not (tmp_path / "out").exists()


def test_a_stopped_capture_goes_on_and_ends_with_the_same_files(make_target, random_samples, tmp_path, monkeypatch):
    target, samples = make_target(), random_samples(*LENGTHS)
    num_shards = store(tmp_path / "whole", target, samples)
    real, written = storing._write_whole, []

    def stops(path, content, what):
        if len(written) == 4:
            raise KeyboardInterrupt
        written.append(path.name)
        real(path, content, what)

    monkeypatch.setattr(storing, "_write_whole", stops)
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path / "stopped", target, samples)
    monkeypatch.setattr(storing, "_write_whole", real)
    with pytest.raises(StoreError, match=rf"2 of {num_shards} shards are finished"):
        StoredStates(tmp_path / "stopped")
    assert store(tmp_path / "stopped", target, samples) == num_shards - 2
    assert files_of(tmp_path / "stopped") == files_of(tmp_path / "whole")
    # nothing left: the target is not even loaded
    assert store_states(tmp_path / "stopped", planned(target, samples), samples, lambda: pytest.fail("loaded")) == 0


@pytest.mark.slow
def test_kill_9_while_writing_loses_one_shard_at_most(make_target, random_samples, tmp_path):
    target, samples = make_target(), random_samples(*(LENGTHS * 12))
    script, out, manifest = tmp_path / "store.py", tmp_path / "out", planned(target, samples)
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / MANIFEST).write_text(manifest.text())
    (plan / "samples.json").write_text(json.dumps([asdict(sample) for sample in samples]))
    script.write_text(
        "import json, sys\n"
        "from pathlib import Path\n"
        "from breakeven.drafter.capture.capture import Capture\n"
        "from breakeven.drafter.capture.store_format import read_manifest\n"
        "from breakeven.drafter.capture.storing import store_states\n"
        "from breakeven.drafter.data.samples import Sample\n"
        "plan, target, out = map(Path, sys.argv[1:])\n"
        "samples = [Sample(**fields) for fields in json.loads((plan / 'samples.json').read_text())]\n"
        "store_states(out, read_manifest(plan), samples, lambda: Capture.from_folder(target, (1, 2, 3), device='cpu'),\n"
        "             tell=lambda progress: print(progress.num_shards, flush=True))\n"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for attempt in range(1, 4):
        with subprocess.Popen([sys.executable, script, plan, target, out], stdout=subprocess.PIPE, env=environment) as process:
            for line in process.stdout:
                if int(line) >= attempt * len(manifest.shards) // 5:
                    process.send_signal(signal.SIGKILL)
                    break
        assert process.returncode == -signal.SIGKILL
    assert store(out, target, samples) < len(manifest.shards)
    expected = tmp_path / "whole"
    store(expected, target, samples)
    assert files_of(out) == files_of(expected)


def test_a_kill_before_the_manifest_has_its_name_leaves_a_folder_that_can_be_used(make_target, random_samples, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / f".{MANIFEST}-0a1b2c3d.writing").write_text('{"half')
    assert store(out, make_target(), random_samples(*LENGTHS)) > 0
    assert not list(out.glob(UNFINISHED))


@pytest.mark.parametrize(
    ("leftover", "content"),
    [
        (".states-00001.safetensors-0a1b2c3d.writing", b"half a shard"),
        ("states-00001.safetensors", b"a whole one whose line was never written"),
        ("finished.jsonl", None),
    ],
)
def test_what_a_kill_leaves_is_written_again(make_target, random_samples, tmp_path, leftover, content):
    target, samples, out = make_target(), random_samples(*LENGTHS), tmp_path / "out"
    store(out, target, samples)
    whole = files_of(out)
    lines = whole["finished.jsonl"].decode().splitlines(keepends=True)
    # the target and the first shard were finished, and perhaps half a line more
    (out / "finished.jsonl").write_text("".join(lines[:2]) + (lines[2][:20] if content is None else ""))
    for index in range(1, len(lines) - 1):
        (out / f"states-{index:05d}.safetensors").unlink()
    if content is not None:
        (out / leftover).write_bytes(content)
    assert store(out, target, samples) == len(lines) - 2
    assert files_of(out) == whole
    StoredStates(out).capture(samples)


def test_a_full_disk_keeps_finished_shards_and_leaves_no_half_file(make_target, random_samples, tmp_path):
    target, samples, out = make_target(), random_samples(5, 6, 7, 300 // 3), tmp_path / "out"
    manifest = planned(target, samples, shard_bytes=6 * 512)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # a limit that the small shards keep and the last does not: the same error as a full disk, from the same call
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        with pytest.raises(StoreError, match=rf"the disk was full at shard {len(manifest.shards)} of .*finished before is kept"):
            store_states(out, manifest, samples, lambda: Capture.from_folder(target, (1, 2, 3), device="cpu"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(out.glob(UNFINISHED))
    assert store_states(out, manifest, samples, lambda: Capture.from_folder(target, (1, 2, 3), device="cpu")) == 1
    StoredStates(out).capture(samples)


def test_no_space_left_has_the_same_message(make_target, random_samples, tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"disk was full at the manifest .*No space left"):
        store(tmp_path / "out", make_target(), random_samples(*LENGTHS))


def test_broken_numbers_are_found_before_they_are_stored(make_target, random_samples, tmp_path):
    target, samples, out = make_target(), random_samples(*LENGTHS), tmp_path / "out"

    def broken():
        capture = Capture.from_folder(target, (1, 2, 3), device="cpu")
        capture._backend._weights.layers[1].down[0, 0] = float("nan")
        return capture

    with pytest.raises(DataError, match="entering layer 2 holds NaN"):
        store_states(out, planned(target, samples), samples, broken)
    assert not list(out.glob("states-*"))


def test_another_capture_into_the_same_folder_is_refused(make_target, random_samples, tmp_path):
    target, samples, out = make_target(), random_samples(*LENGTHS), tmp_path / "out"
    store(out, target, samples)
    for what, arguments in {
        "of another target": (make_target("other", seed=5), samples, {}),
        "of other samples": (target, random_samples(*LENGTHS, seed=8), {}),
        r"with layers \(1, 2, 3\) instead of \(0, 2, 3\)": (target, samples, {"layers": (0, 2, 3)}),
        "with dtype float32": (target, samples, {"dtype": torch.bfloat16}),
        "cut into other shards": (target, samples, {"shard_bytes": 2 * SHARD_BYTES}),
    }.items():
        with pytest.raises(StoreError, match=what):
            store(out, arguments[0], arguments[1], **arguments[2])
        with pytest.raises(StoreError, match=what):
            check_space(out, planned(arguments[0], arguments[1], **arguments[2]))


def test_a_folder_of_something_else_is_left_alone(make_target, random_samples, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="not empty"):
        store(tmp_path / "out", make_target(), random_samples(*LENGTHS))
    assert (tmp_path / "out" / "thesis.tex").read_text() == "precious"


def test_only_one_process_writes(make_target, random_samples, tmp_path):
    target, samples, out = make_target(), random_samples(*LENGTHS), tmp_path / "out"

    def second():
        with pytest.raises(StoreError, match="another process is storing"):
            store(out, target, samples)
        return Capture.from_folder(target, (1, 2, 3), device="cpu")

    store_states(out, planned(target, samples), samples, second)
