"""A model folder as data: `config.json` and the safetensors headers, read without torch and without trust.

Only headers are read, so a 600 GB target opens in milliseconds. Nothing in a folder is executed: pickles are refused, and every
length and offset is checked against the file before it is used. The format: 8 bytes little-endian header length, JSON header
`{name: {dtype, shape, data_offsets}}`, then the data (huggingface/safetensors, "Format").
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breakeven.errors import CheckpointError

__all__ = ["DTYPE_BYTES", "ModelFolder", "TensorInfo", "fingerprint", "open_folder"]

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
# The reference implementation's own limit; a longer header is an attack or a damaged file.
MAX_HEADER_BYTES = 100_000_000
MAX_CONFIG_BYTES = 20_000_000
MAX_SHARDS = 10_000
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Where a tensor lies: bytes `begin` to `end` of `file`, counted from the file's start."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo] = field(repr=False)


def open_folder(path: Path) -> ModelFolder:
    """Read a model or drafter folder's configuration and tensor headers.

    Raises:
        CheckpointError: the folder, its configuration or its weights are missing, truncated, of another format or hostile.
    """
    if not path.is_dir():
        found = "a file" if path.is_file() else "nothing there"
        raise CheckpointError(f"{path}: {found}; expected a model folder with config.json and *.safetensors")
    config = _read_json(path / "config.json", MAX_CONFIG_BYTES)
    tensors: dict[str, TensorInfo] = {}
    for file in _weight_files(path):
        for name, info in _read_header(file).items():
            if name in tensors:
                raise CheckpointError(f"{file}: tensor {_shown(name)} stands in {tensors[name].file.name} too; expected it once")
            tensors[name] = info
    return ModelFolder(path=path, config=config, tensors=tensors)


def fingerprint(folder: ModelFolder) -> str:
    """Sixteen hex digits over the configuration, the tensor headers and the files' sizes.

    Cheap (no weight is read), so two checkpoints that differ only in weight values of equal shape look the same unless their
    files' first 64 kB of data differ; enough to tell which folder a run used, not to prove integrity.
    """
    digest = hashlib.sha256(json.dumps(folder.config, sort_keys=True, default=str).encode())
    for name, info in sorted(folder.tensors.items()):
        digest.update(f"{name} {info.dtype} {info.shape} {info.end - info.begin}\n".encode(errors="replace"))
    for file in sorted({info.file for info in folder.tensors.values()}):
        with file.open("rb") as opened:
            header_bytes = struct.unpack("<Q", opened.read(8))[0]
            opened.seek(8 + header_bytes)
            digest.update(opened.read(65536))
        digest.update(str(file.stat().st_size).encode())
    return digest.hexdigest()[:16]


def _weight_files(path: Path) -> list[Path]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        weight_map = _read_json(index, MAX_HEADER_BYTES).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{index}: no weight_map; expected a table from tensor names to files")
        names = {str(name) for name in weight_map.values()}
        if len(names) > MAX_SHARDS:
            raise CheckpointError(f"{index}: names {len(names)} files; expected at most {MAX_SHARDS}")
        files = []
        for name in sorted(names):
            if Path(name).name != name:
                raise CheckpointError(f"{index}: names the file {_shown(name)}; expected files of the same folder")
            files.append(path / name)
    else:
        files = sorted(path.glob("*.safetensors"))
    if not files:
        pickles = [name for name in PICKLES if (path / name).exists()]
        advice = (
            f"found {pickles[0]}, which is a pickle and can run code when loaded: convert it to safetensors first"
            if pickles
            else "expected model.safetensors; was the download complete?"
        )
        raise CheckpointError(f"{path}: no safetensors weights; {advice}")
    for file in files:
        if not file.is_file():
            what = "a link to nothing" if file.is_symlink() else "missing"
            raise CheckpointError(f"{file}: {what}; the download is incomplete, fetch the model again")
    return files


def _read_header(file: Path) -> dict[str, TensorInfo]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        prefix = opened.read(8)
        if len(prefix) < 8:
            raise CheckpointError(f"{file}: {size} bytes; too short to be safetensors, the download is incomplete")
        header_bytes = struct.unpack("<Q", prefix)[0]
        if header_bytes > min(MAX_HEADER_BYTES, size - 8):
            raise CheckpointError(
                f"{file}: claims a header of {header_bytes} bytes in a file of {size}; truncated or not a safetensors file"
            )
        header = _parse_json(opened.read(header_bytes), file)
    tensors = {}
    start = 8 + header_bytes
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        info = _tensor_info(file, name, entry, start, size)
        tensors[name] = info
        spans.append((info.begin, info.end, name))
    spans.sort()
    for (_, end, name), (begin, _, other) in zip(spans, spans[1:], strict=False):
        if begin < end:
            raise CheckpointError(f"{file}: tensors {_shown(name)} and {_shown(other)} overlap; the file is damaged or hostile")
    return tensors


def _tensor_info(file: Path, name: str, entry: object, start: int, size: int) -> TensorInfo:
    if not isinstance(entry, dict):
        raise CheckpointError(f"{file}: the header entry of {_shown(name)} is not a table; the file is damaged")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise CheckpointError(
            f"{file}: tensor {_shown(name)} has dtype {_shown(str(dtype))}; expected one of {', '.join(DTYPE_BYTES)}"
        )
    if not (isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)):
        raise CheckpointError(f"{file}: tensor {_shown(name)} has no valid shape; the file is damaged")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int and n >= 0 for n in offsets)):
        raise CheckpointError(f"{file}: tensor {_shown(name)} has no valid data_offsets; the file is damaged")
    begin, end = start + offsets[0], start + offsets[1]
    if end > size:
        raise CheckpointError(f"{file}: tensor {_shown(name)} ends at byte {end} of a file of {size}: truncated, fetch it again")
    if end - begin != math.prod(shape) * DTYPE_BYTES[dtype]:
        raise CheckpointError(
            f"{file}: tensor {_shown(name)} has {end - begin} bytes for shape {shape} of {dtype}; the file is damaged"
        )
    return TensorInfo(file=file, dtype=dtype, shape=tuple(shape), begin=begin, end=end)


def _read_json(file: Path, max_bytes: int) -> dict[str, Any]:
    try:
        size = file.stat().st_size
        if size > max_bytes:
            raise CheckpointError(f"{file}: {size} bytes; expected at most {max_bytes}")
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: missing; a model folder has config.json beside its weights") from error
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror})") from error
    return _parse_json(data, file)


def _parse_json(data: bytes, file: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:120]
        raise CheckpointError(f"{file}: not valid JSON ({why})") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{file}: holds a {type(parsed).__name__}; expected a JSON object")
    return parsed


def _shown(name: str) -> str:
    """A name from an untrusted file, safe to print: control characters escaped, at most 80 characters."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")
