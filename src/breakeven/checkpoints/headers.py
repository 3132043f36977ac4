"""Safetensors headers and JSON files from strangers: every length is checked before it is used, and memory stays bounded.

The format (huggingface/safetensors, "Format"): 8 bytes little-endian header length, a JSON header
`{name: {dtype, shape, data_offsets}}`, then the data, without holes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.errors import CheckpointError

__all__ = ["DTYPE_BITS", "MAX_JSON_BYTES", "TensorInfo", "printable", "read_header", "read_json"]

DTYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E4M3FNUZ": 8, "F8_E5M2": 8, "F8_E5M2FNUZ": 8, "F8_E8M0": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

# The largest real ones are the indexes of mixture-of-experts checkpoints: about 25 MB and 210 000 tensors over all shards.
MAX_JSON_BYTES = 32_000_000
# An item costs up to 200 bytes and 2 microseconds in Python, so this bounds what a hostile file can make us take. A header
# has about ten a tensor, an index one: room for 50 000 tensors in one file and every real index.
MAX_JSON_ITEMS = 500_000
MAX_NAME_CHARACTERS = 512
MAX_DIMENSIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Where a tensor lies: bytes `begin` to `end` of `file`, counted from the file's start."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(file: Path) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file; the data themselves are not read.

    Raises:
        CheckpointError: truncated, not safetensors, or a header that contradicts itself or the file.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            prefix = opened.read(8)
            if len(prefix) < 8:
                raise CheckpointError(
                    f"{file}: {size} bytes, too short to be safetensors: the download is incomplete, fetch it again"
                )
            header_bytes = struct.unpack("<Q", prefix)[0]
            if header_bytes > size - 8:
                raise CheckpointError(
                    f"{file}: claims a header of {header_bytes} bytes in a file of {size}: truncated, or not safetensors; "
                    "fetch it again"
                )
            if header_bytes > MAX_JSON_BYTES:
                raise CheckpointError(
                    f"{file}: claims a header of {header_bytes} bytes; expected at most {MAX_JSON_BYTES}: damaged"
                )
            header = _parse_json(opened.read(header_bytes), file)
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); check its permissions and the disk") from error
    start = 8 + header_bytes
    tensors = {name: _tensor_info(file, name, entry, start, size) for name, entry in header.items() if name != "__metadata__"}
    _require_no_holes(file, tensors, start, size)
    return tensors


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file, bounded in size, depth and number of items.

    Raises:
        CheckpointError: missing, unreadable, too large, not JSON, or not an object.
    """
    try:
        if not file.is_file():  # a pipe or a device would block or never end
            what = "is not a regular file" if file.exists() else "is missing"
            raise CheckpointError(f"{file}: {what}; a model folder has it beside its weights, was the download complete?")
        size = file.stat().st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointError(f"{file}: {size} bytes; expected at most {MAX_JSON_BYTES}")
        return _parse_json(file.read_bytes(), file)
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); check its permissions and the disk") from error


def printable(name: str) -> str:
    """Text from an untrusted file, safe to show: control characters escaped, at most 80 characters."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


def _parse_json(data: bytes, file: Path) -> dict[str, Any]:
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_JSON_ITEMS:
        raise CheckpointError(f"{file}: more than {MAX_JSON_ITEMS} items; expected the JSON of a model folder")
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:120]
        raise CheckpointError(f"{file}: not valid JSON ({why}): the file is damaged, fetch it again") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{file}: holds a {type(parsed).__name__}; expected a JSON object")
    return parsed


def _tensor_info(file: Path, name: str, entry: object, start: int, size: int) -> TensorInfo:
    if not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
        raise CheckpointError(
            f"{file}: the tensor name {printable(name)} holds control characters or is over {MAX_NAME_CHARACTERS} long: "
            "damaged or hostile, do not use it"
        )
    if not isinstance(entry, dict):
        raise CheckpointError(f"{file}: the header entry of {printable(name)} is not an object: damaged, fetch it again")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        known = ", ".join(DTYPE_BITS)
        raise CheckpointError(f"{file}: tensor {printable(name)} has dtype {printable(str(dtype))}; expected one of {known}")
    if not (isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS and all(_is_size(n) for n in shape)):
        raise CheckpointError(f"{file}: tensor {printable(name)} has no valid shape: damaged, fetch it again")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(_is_size(n) for n in offsets)):
        raise CheckpointError(f"{file}: tensor {printable(name)} has no valid data_offsets: damaged, fetch it again")
    begin, end = start + offsets[0], start + offsets[1]
    if end > size:
        raise CheckpointError(f"{file}: tensor {printable(name)} ends at byte {end} of a file of {size}: truncated, fetch it again")
    if (end - begin) * 8 != math.prod(shape) * DTYPE_BITS[dtype]:
        raise CheckpointError(
            f"{file}: tensor {printable(name)} has {end - begin} bytes for shape {shape} of {dtype}: damaged, fetch it again"
        )
    return TensorInfo(file=file, dtype=dtype, shape=tuple(shape), begin=begin, end=end)


def _is_size(number: object) -> bool:
    return type(number) is int and 0 <= number < 1 << 63


def _require_no_holes(file: Path, tensors: Mapping[str, TensorInfo], start: int, size: int) -> None:
    """The reference reader refuses holes as well: they would hide bytes that some readers see and others do not."""
    position = start
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if info.begin != position:
            what = "overlaps another" if info.begin < position else f"leaves {info.begin - position} bytes before it unused"
            raise CheckpointError(f"{file}: tensor {printable(name)} {what}: damaged or hostile, fetch it again")
        position = info.end
    if position != size:
        raise CheckpointError(f"{file}: {size - position} bytes after the last tensor belong to none: damaged, fetch it again")
