"""A few rows of a tensor, or a small tensor whole, as numpy arrays: for checks that shapes alone cannot decide.

Only the bytes asked for are read, so a row of a 600 GB checkpoint costs one disk access.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from breakeven.checkpoints.headers import DTYPE_BITS, TensorInfo
from breakeven.errors import CheckpointError

__all__ = ["MAX_BYTES", "is_readable", "read_rows", "read_whole"]

# A vocabulary map of a million entries of 8 bytes; what is larger is read by rows.
MAX_BYTES = 16_000_000
_PLAIN = {
    "BOOL": np.dtype("?"), "U8": np.dtype("u1"), "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"), "I16": np.dtype("<i2"), "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"), "I32": np.dtype("<i4"), "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"), "I64": np.dtype("<i8"), "F64": np.dtype("<f8"),
}  # fmt: skip


def is_readable(info: TensorInfo) -> bool:
    """Whether its numbers can be read here: 8-bit and smaller floats need scales that lie elsewhere."""
    return info.dtype in _PLAIN or info.dtype == "BF16"


def read_whole(info: TensorInfo) -> NDArray[np.generic] | None:
    """The tensor in its shape (bfloat16 as float32); None where it is too large or of a dtype that is not readable.

    Raises:
        CheckpointError: the file has changed or cannot be read.
    """
    if not is_readable(info) or info.end - info.begin > MAX_BYTES:
        return None
    (data,) = _bytes(info, [info.begin], info.end - info.begin)
    return _numbers(info, data).reshape(info.shape)


def read_rows(info: TensorInfo, rows: Sequence[int]) -> NDArray[np.float64] | None:
    """Rows of a matrix as [len(rows), width]; None where it is no matrix, not readable, or the rows are too many or not there.

    Raises:
        CheckpointError: the file has changed or cannot be read.
    """
    if len(info.shape) != 2 or not is_readable(info) or not rows or min(rows) < 0 or max(rows) >= info.shape[0]:
        return None
    row_bytes = math.prod(info.shape[1:]) * DTYPE_BITS[info.dtype] // 8
    if row_bytes * len(rows) > MAX_BYTES:
        return None
    parts = _bytes(info, [info.begin + row * row_bytes for row in rows], row_bytes)
    return _numbers(info, b"".join(parts)).reshape(len(rows), info.shape[1]).astype(np.float64)


def _bytes(info: TensorInfo, begins: Sequence[int], count: int) -> list[bytes]:
    """`count` bytes from each of `begins`."""
    parts = []
    try:
        with info.file.open("rb") as opened:
            for begin in begins:
                opened.seek(begin)
                parts.append(opened.read(count))
    except OSError as error:
        raise CheckpointError(f"{info.file}: cannot be read ({error.strerror}); check its permissions and the disk") from error
    if any(len(part) != count for part in parts):
        raise CheckpointError(f"{info.file}: shorter than when it was opened; leave model folders alone while they are examined")
    return parts


def _numbers(info: TensorInfo, data: bytes) -> NDArray[np.generic]:
    if info.dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, _PLAIN[info.dtype])
