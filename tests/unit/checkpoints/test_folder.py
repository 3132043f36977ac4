from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from tests.unit.checkpoints.conftest import CONFIG, safetensors_bytes, two_tensors

from breakeven.checkpoints.folder import fingerprint, open_folder
from breakeven.checkpoints.headers import MAX_JSON_BYTES, read_header
from breakeven.errors import CheckpointError

MakeFolder = Callable[..., Path]


def entry(begin: int, end: int, dtype: str = "U8", shape: object = None) -> dict[str, object]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def test_configuration_and_headers_of_one_file(make_folder: MakeFolder) -> None:
    path = make_folder()
    folder = open_folder(path)
    assert folder.config == CONFIG
    assert set(folder.tensors) == {"a", "b.weight"}
    info = folder.tensors["b.weight"]
    assert (info.dtype, info.shape, info.file) == ("F32", (2, 3), path / "model.safetensors")
    assert info.file.read_bytes()[info.begin : info.end] == bytes(range(8, 32))


def test_shards_named_by_an_index(make_folder: MakeFolder) -> None:
    path = make_folder()
    (path / "model.safetensors").rename(path / "model-1.safetensors")
    (path / "model-2.safetensors").write_bytes(safetensors_bytes({"c": entry(0, 4)}, bytes(4)))
    (path / "unrelated.safetensors").write_bytes(b"not listed, so not read")
    names = {"a": "model-1.safetensors", "b.weight": "model-1.safetensors", "c": "model-2.safetensors"}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert {name: info.file.name for name, info in open_folder(path).tensors.items()} == names
    (path / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-2.safetensors: missing; the download is incomplete"):
        open_folder(path)


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ({"weight_map": {}}, "no weight_map"),
        ({"weight_map": ["a"]}, "no weight_map"),
        ({"weight_map": {"a": "../other/model.safetensors"}}, "same folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "same folder"),
        ({"weight_map": {"a": "x\x00.safetensors"}}, r"'x\\x00.safetensors'"),
        ({"weight_map": {"a": 3}}, "same folder"),
        ({"weight_map": {"a": "pytorch_model.bin"}}, "same folder"),
        ({"weight_map": {str(n): f"{n}.safetensors" for n in range(10_001)}}, "names 10001 files"),
    ],
)
def test_an_index_that_cannot_be_trusted(index: object, complaint: str, make_folder: MakeFolder) -> None:
    path = make_folder()
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=complaint):
        open_folder(path)


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (b"", "0 bytes, too short"),
        (b"\x01\x00", "2 bytes, too short"),
        (two_tensors()[:-1], "ends at byte .* truncated, fetch it again"),
        (two_tensors()[:60], "claims a header of .* truncated"),
        (two_tensors() + b"!", "1 bytes after the last tensor"),
        ((1 << 63).to_bytes(8, "little") + b"{}", "claims a header of 9223372036854775808"),
        (safetensors_bytes(b"{", b""), "not valid JSON"),
        (safetensors_bytes(b"\xff\xfe", b""), "not valid JSON"),
        (safetensors_bytes(b"[]", b""), "holds a list"),
        (safetensors_bytes(b"[" * 200_000, b""), "nested too deeply|not valid JSON"),
        (safetensors_bytes(b'{"a":' * 100_000, b""), "nested too deeply|not valid JSON"),
        (safetensors_bytes(b'{"a":' + b"[[]," * 600_000, b""), "more than 500000 items"),
        (safetensors_bytes({"a": entry(0, 4), "b": entry(2, 6)}, bytes(6)), "overlaps another"),
        (safetensors_bytes({"a": entry(0, 4), "b": entry(6, 8)}, bytes(8)), "leaves 2 bytes before it unused"),
        (safetensors_bytes({"a": entry(4, 0, shape=[0])}, bytes(4)), "-4 bytes for shape"),
        (safetensors_bytes({"a": entry(0, 4, shape=[5])}, bytes(4)), "4 bytes for shape"),
        (safetensors_bytes({"a": entry(0, 4, shape=[-2, -2])}, bytes(4)), "no valid shape"),
        (safetensors_bytes({"a": entry(0, 4, shape=[2**62] * 17)}, bytes(4)), "no valid shape"),
        (safetensors_bytes({"a": entry(0, 4, shape=[4.0])}, bytes(4)), "no valid shape"),
        (safetensors_bytes({"a": entry(0, 4, shape=[True] * 3)}, bytes(4)), "no valid shape"),
        (safetensors_bytes({"a": entry(0, 4, dtype="PICKLE")}, bytes(4)), "dtype 'PICKLE'"),
        (safetensors_bytes({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4, 5]}}, bytes(4)), "data_offsets"),
        (safetensors_bytes({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 10**400]}}, bytes(4)), "data_offsets"),
        (safetensors_bytes({"a": 3}, b""), "is not an object"),
        (safetensors_bytes({"a\x1b[2J": entry(0, 4)}, bytes(4)), r"'a\\x1b\[2J' holds control characters"),
        (safetensors_bytes({"a" * 600: entry(0, 4)}, bytes(4)), "over 512"),
        (safetensors_bytes(b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
                           bytes(4)), "leaves 2 bytes before it unused"),
    ],
)  # fmt: skip
def test_damaged_and_hostile_weights(weights: bytes, complaint: str, make_folder: MakeFolder) -> None:
    path = make_folder(weights=weights)
    with pytest.raises(CheckpointError, match=complaint) as caught:
        open_folder(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [("{", "not valid JSON"), ("3", "holds a int"), ("[" * 100_000, "not valid JSON|too deeply"), ("1" * 6000, "not valid JSON")],
)
def test_damaged_configurations(config: str, complaint: str, make_folder: MakeFolder) -> None:
    path = make_folder()
    (path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=complaint):
        open_folder(path)


def test_what_is_missing_is_named(tmp_path: Path, make_folder: MakeFolder) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: nothing there; expected a model folder"):
        open_folder(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file: a file; expected a model folder"):
        open_folder(tmp_path / "file")
    path = make_folder()
    (path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config.json: is missing"):
        open_folder(path)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no safetensors weights; expected model.safetensors"):
        open_folder(path)
    (path / "pytorch_model.bin").touch()
    with pytest.raises(CheckpointError, match=r"found pytorch_model.bin, which is a pickle .* convert it to safetensors"):
        open_folder(path)


def test_pipes_are_not_opened(make_folder: MakeFolder) -> None:
    path = make_folder()
    (path / "config.json").unlink()
    os.mkfifo(path / "config.json")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        open_folder(path)
    (path / "config.json").unlink()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").unlink()
    os.mkfifo(path / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file"):
        open_folder(path)


def test_links_out_of_the_folder_are_refused(make_folder: MakeFolder, tmp_path: Path) -> None:
    path = make_folder()
    (tmp_path / "secret.json").write_text('{"token": "x"}')
    (path / "config.json").unlink()
    (path / "config.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(CheckpointError, match=r"a link to .*secret.json, outside .*put the file itself there"):
        open_folder(path)
    (path / "config.json").unlink()
    (path / "real.json").write_text("{}")
    (path / "config.json").symlink_to("real.json")
    assert open_folder(path).config == {}
    (path / "model.safetensors").rename(tmp_path / "model.safetensors")
    (path / "model.safetensors").symlink_to(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="outside"):
        open_folder(path)
    linked = tmp_path / "linked"
    linked.symlink_to(make_folder("other"))
    assert set(open_folder(linked).tensors) == {"a", "b.weight"}


def test_links_inside_a_hub_cache_are_followed(tmp_path: Path) -> None:
    repository = tmp_path / "models--a--b"
    snapshot, blobs = repository / "snapshots" / ("0" * 40), repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name, content in (("config.json", b"{}"), ("model.safetensors", two_tensors())):
        (blobs / name).write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert set(open_folder(snapshot).tensors) == {"a", "b.weight"}
    (blobs / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="a link to nothing"):
        open_folder(snapshot)
    (tmp_path / "models--other--c" / "blobs").mkdir(parents=True)
    (tmp_path / "models--other--c" / "blobs" / "x").write_bytes(two_tensors())
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../../models--other--c/blobs/x")
    with pytest.raises(CheckpointError, match="outside"):
        open_folder(snapshot)


def test_the_fingerprint_follows_what_it_reads(make_folder: MakeFolder) -> None:
    first = fingerprint(open_folder(make_folder("a")))
    assert first == fingerprint(open_folder(make_folder("b")))
    assert len(first) == 16
    others = {
        fingerprint(open_folder(make_folder("c", config=CONFIG | {"rope_theta": 1e4}))),
        fingerprint(open_folder(make_folder("d", weights=two_tensors()[:-1] + b"!"))),
        fingerprint(open_folder(make_folder("e", weights=two_tensors().replace(b"b.weight", b"c.weight")))),
    }
    assert len({first, *others}) == 4
    gone = open_folder(make_folder("f"))
    (gone.path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="changed while it was read"):
        fingerprint(gone)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
sizes = st.integers(-1, 20)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["U8", "F32", "BF16", "F4", "I64", "x"]) | json_values,
        "shape": st.lists(sizes, max_size=3) | json_values,
        "data_offsets": st.lists(sizes, min_size=2, max_size=2) | json_values,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["a", "b", "__metadata__", "\n"]), entries | json_values, max_size=3), st.binary(max_size=24)
)
def test_whatever_is_accepted_the_reference_reader_accepts(tmp_path: Path, header: dict[str, object], data: bytes) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(safetensors_bytes(header, data))
    try:
        tensors = read_header(file)
    except CheckpointError:
        return
    metadata = header.get("__metadata__", {})
    if not (isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())):
        return  # we do not read it, so we do not judge it
    try:
        with safe_open(file, "numpy") as reference:
            assert set(reference.keys()) == set(tensors)
    except SafetensorError as error:
        raise AssertionError(f"accepted {header} with {len(data)} bytes: {error}") from error


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(two_tensors()) - 1), st.integers(0, 255), st.integers(0, len(two_tensors())))
def test_flipped_and_cut_files_are_read_or_refused_clearly(tmp_path: Path, position: int, value: int, keep: int) -> None:
    damaged = bytearray(two_tensors())
    damaged[position] = value
    file = tmp_path / "x.safetensors"
    file.write_bytes(bytes(damaged[: max(keep, position + 1)]))
    refusal = ""
    try:
        read_header(file)
    except CheckpointError as error:
        refusal = str(error)
    assert refusal.isprintable()


MEASURE = """
import re, sys, time
from pathlib import Path
from breakeven.checkpoints.folder import open_folder
from breakeven.errors import CheckpointError
began_s = time.process_time()
try:
    open_folder(Path(sys.argv[1]))
    told = "opened"
except CheckpointError as error:
    told = str(error)[-60:]
# not ru_maxrss: a child starts with its parent's peak, so a large test process would fail this one
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(time.process_time() - began_s, peak_kb / 1e3, told)
"""


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":"' + "😀".encode() * ((MAX_JSON_BYTES - 10) // 4) + b'"}',
        b'{"a":[' + b"{}," * 249_000 + b"{}]}",
        b"{" + b",".join(b'"%d":0' % n for n in range(490_000)) + b"}",
        b" " * (MAX_JSON_BYTES + 1),
    ],
    ids=["one long string", "empty objects", "many keys", "too long"],
)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_the_worst_header_costs_little(header: bytes, make_folder: MakeFolder) -> None:
    path = make_folder(weights=safetensors_bytes(header, b""))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    took_s, peak_mb, told = done.stdout.split(maxsplit=2)
    assert "opened" not in told
    assert float(took_s) < 2
    assert float(peak_mb) < 230  # the interpreter's own 30 MB and numpy's included


def test_a_large_honest_checkpoint_opens_in_seconds(make_folder: MakeFolder) -> None:
    """Three times the tensors in one shard of the largest public mixture-of-experts checkpoints."""
    header = {f"model.layers.{n}.mlp.experts.{n}.down_proj.weight_packed": entry(n, n + 1) for n in range(10_000)}
    path = make_folder(weights=safetensors_bytes(header, bytes(10_000)))
    began_s = time.process_time()
    assert len(open_folder(path).tensors) == 10_000
    assert time.process_time() - began_s < 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json"])
def test_links_in_a_circle_are_one_message(make_folder: MakeFolder, name: str) -> None:
    folder = make_folder()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(folder / name)
    with pytest.raises(CheckpointError) as caught:
        open_folder(folder)
    assert f"{name}: a link that leads back to itself" in str(caught.value)
