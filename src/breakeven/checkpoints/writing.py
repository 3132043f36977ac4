"""A safetensors file written in a stream: tensors copied from other files, or made anew, without holding them in memory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from breakeven.checkpoints.headers import DTYPE_BITS, TensorInfo
from breakeven.errors import CheckpointError

__all__ = ["NewTensor", "bfloat16", "copy_of", "of_array", "rows_of", "write_safetensors"]

CHUNK_BYTES = 16_000_000
_NAMES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "u1": "U8", "i1": "I8", "b1": "BOOL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTensor:
    """`chunks` yields its bytes, little-endian and row-major, when the file is written."""

    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterator[bytes]]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BITS[self.dtype] // 8


def copy_of(info: TensorInfo) -> NewTensor:
    """The same bytes."""
    return NewTensor(dtype=info.dtype, shape=info.shape, chunks=lambda: _read(info, info.begin, info.end))


def rows_of(info: TensorInfo, rows: Sequence[int]) -> NewTensor:
    """Some rows of a matrix, in the order given. The rows must be there."""
    assert len(info.shape) == 2
    assert all(0 <= row < info.shape[0] for row in rows)
    width = info.shape[1] * DTYPE_BITS[info.dtype] // 8

    def chunks() -> Iterator[bytes]:
        for row in rows:
            yield from _read(info, info.begin + row * width, info.begin + (row + 1) * width)

    return NewTensor(dtype=info.dtype, shape=(len(rows), info.shape[1]), chunks=chunks)


def of_array(values: NDArray[Any], *, as_dtype: str | None = None) -> NewTensor:
    """An array as it is; `as_dtype` BF16 rounds float32 values to it."""
    if as_dtype == "BF16":
        return NewTensor(dtype="BF16", shape=values.shape, chunks=lambda: iter([bfloat16(values.astype(np.float32)).tobytes()]))
    dtype = as_dtype or _NAMES[values.dtype.str[1:]]
    stored = values.astype({name: code for code, name in _NAMES.items()}[dtype])
    return NewTensor(dtype=dtype, shape=values.shape, chunks=lambda: iter([stored.tobytes()]))


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest even (finite values)."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(file: Path, tensors: Mapping[str, NewTensor]) -> None:
    """Write and flush to the disk.

    Raises:
        CheckpointError: a source has changed in the meantime.
        OSError: the disk is full, or the folder is not there.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, tensor in tensors.items():
        end = position + tensor.num_bytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # readers map the data in place, so they start at a multiple of 8
    with file.open("wb") as opened:
        opened.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, tensor in tensors.items():
            written = sum(opened.write(chunk) for chunk in tensor.chunks())
            if written != tensor.num_bytes:
                raise CheckpointError(f"{file}: {name} has {written} bytes, its shape takes {tensor.num_bytes}")
        opened.flush()
        os.fsync(opened.fileno())


def _read(info: TensorInfo, begin: int, end: int) -> Iterator[bytes]:
    try:
        with info.file.open("rb") as opened:
            opened.seek(begin)
            while begin < end and (chunk := opened.read(min(CHUNK_BYTES, end - begin))):
                begin += len(chunk)
                yield chunk
    except OSError as error:
        raise CheckpointError(f"{info.file}: cannot be read ({error.strerror}); check its permissions and the disk") from error
    if begin != end:
        raise CheckpointError(f"{info.file}: shorter than when it was opened; leave model folders alone while they are copied")
