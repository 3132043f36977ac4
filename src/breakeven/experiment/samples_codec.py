"""Raw samples as two compressed blobs a trial: one of requests (JSON), one of arrivals (numbers), never a pickle.

Arrivals are the bulk (a busy server sends millions a trial): time since the request's previous arrival in whole microseconds and
tokens since then, both little-endian and compressed, 1 to 2 bytes an arrival. Times are rounded to microseconds; a client cannot
tell less than that apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import orjson

from breakeven.errors import StoreError
from breakeven.loadgen.samples import RequestSample

__all__ = ["StoredSamples", "decode_samples", "encode_samples"]

# Level 6 is 4 times slower than 1 for 8 % less; a window's samples should be written within a second.
COMPRESSION = 1
MAX_BLOB_BYTES = 4_000_000_000

_FIELDS = (
    "index", "prompt_id", "kind", "scheduled_s", "start_s", "first_token_s", "end_s",
    "prompt_tokens", "output_tokens", "finish_reason", "degenerate", "error", "staggered", "speculation",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredSamples(Sequence[RequestSample]):
    """Samples of one trial, unpacked whenever they are looked at: a run's samples together can be larger than memory."""

    num_requests: int
    requests: bytes
    arrivals: bytes

    def __len__(self) -> int:
        return self.num_requests

    def __iter__(self) -> Iterator[RequestSample]:
        return iter(self._decoded())

    @overload
    def __getitem__(self, index: int) -> RequestSample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RequestSample]: ...
    def __getitem__(self, index: int | slice) -> RequestSample | Sequence[RequestSample]:
        return self._decoded()[index]

    def _decoded(self) -> list[RequestSample]:
        try:
            return decode_samples(self.requests, self.arrivals)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, zlib.error) as error:
            raise StoreError(
                f"the samples of a trial are damaged ({error}); restore the run from a copy or measure again"
            ) from error


def encode_samples(samples: Sequence[RequestSample]) -> tuple[bytes, bytes]:
    """(requests, arrivals), both compressed."""
    rows = [[getattr(sample, name) for name in _FIELDS] for sample in samples]
    counts = [len(sample.arrivals) for sample in samples]
    requests = orjson.dumps({"fields": _FIELDS, "rows": rows, "num_arrivals": counts})
    pairs = [pair for sample in samples for pair in sample.arrivals]
    table = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    firsts = np.cumsum([0, *counts])[:-1]
    firsts = firsts[np.asarray(counts, dtype=np.int64) > 0].astype(np.int64)
    times_us = _differences(np.rint(table[:, 0] * 1e6).astype("<i8"), firsts)
    tokens = _differences(table[:, 1].astype("<i4"), firsts)
    return zlib.compress(requests, COMPRESSION), zlib.compress(times_us.tobytes() + tokens.tobytes(), COMPRESSION)


def decode_samples(requests: bytes, arrivals: bytes) -> list[RequestSample]:
    """The inverse of `encode_samples`.

    Raises:
        ValueError, TypeError, KeyError, zlib.error: the blobs are damaged.
    """
    content: dict[str, Any] = orjson.loads(_unpacked(requests))
    counts: list[int] = content["num_arrivals"]
    total = sum(counts)
    data = _unpacked(arrivals)
    if len(data) != 12 * total or len(content["rows"]) != len(counts):
        raise ValueError(
            f"{len(data)} bytes of arrivals and {len(content['rows'])} requests; expected {12 * total} and {len(counts)}"
        )
    delta_us, delta_tokens = np.frombuffer(data, "<i8", total), np.frombuffer(data, "<i4", total, offset=8 * total)
    # all requests at once: most have few arrivals, and numpy's calls would cost more than their sums
    pairs = list(zip((_sums(delta_us, counts) / 1e6).tolist(), _sums(delta_tokens, counts).tolist(), strict=True))
    samples, begin = [], 0
    for row, count in zip(content["rows"], counts, strict=True):
        end = begin + count
        fields = dict(zip(content["fields"], row, strict=True))
        if not isinstance(fields.get("speculation"), dict | None):
            raise ValueError("what was reported about a request's drafts is no table")
        samples.append(RequestSample(**fields, arrivals=tuple(pairs[begin:end])))
        begin = end
    return samples


def _differences(values: np.ndarray[Any, Any], firsts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Each value minus the one before it; the values at `firsts` stay as they are."""
    out = values.copy()
    out[1:] -= values[:-1]
    out[firsts] = values[firsts]
    return out


def _sums(differences: np.ndarray[Any, Any], counts: list[int]) -> np.ndarray[Any, Any]:
    """The inverse of `_differences`, for `counts` values a request: running sums that begin anew with each request."""
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(differences, dtype=np.int64)])
    firsts = np.cumsum([0, *counts], dtype=np.int64)[:-1]
    sums: np.ndarray[Any, Any] = running[1:] - np.repeat(running[firsts], counts)
    return sums


def _unpacked(blob: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(blob, MAX_BLOB_BYTES)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError(f"a blob of {len(blob)} bytes is cut short or unpacks to more than {MAX_BLOB_BYTES} bytes")
    return data
