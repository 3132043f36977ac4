"""Bytes of a log in blocks of whole lines: plain, gzipped, UTF-16, standard input, or followed while a server writes it.

Nothing in a file can make this fail or fill memory: a line longer than `MAX_LINE_BYTES` is skipped, a gzip stream is decompressed
piece by piece and at most to `MAX_UNPACKED_BYTES`, and one that is cut off or damaged gives what came before.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from breakeven.errors import UsageError

__all__ = ["MAX_LINE_BYTES", "Source", "blocks"]

BLOCK_BYTES = 1 << 20
PACKED_BYTES = 1 << 14
UNPACKED_BYTES = 1 << 18
MAGIC_BYTES = 6
MAX_LINE_BYTES = 1 << 16
MAX_UNPACKED_BYTES = 16_000_000_000
FOLLOW_WAIT_S = 0.5
_GZIP = b"\x1f\x8b"
_OTHER_PACKERS = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(slots=True)
class Source:
    """A file to read. `notes` collects what was odd about it; `num_bytes` counts what was read, unpacked."""

    name: str
    path: Path | None = None  # None: standard input
    num_bytes: int = 0
    num_long_lines: int = 0
    notes: list[str] = field(default_factory=list)
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES


def blocks(source: Source, *, follow: bool = False, wait: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
    """Blocks that end with a line's end, the last one perhaps without. While following, an empty block means that nothing is new.

    Raises:
        UsageError: the file is not there, is a folder, cannot be read, or is packed in a way that is not read.
    """
    if source.path is not None and source.path.is_dir():
        raise UsageError(f"{source.name}: a folder; expected a log or a metrics dump")
    try:
        raw = _follow(source.path, wait) if follow and source.path is not None else _chunks(source.path)
        yield from _whole_lines(_decoded(raw, source), source)
    except OSError as error:
        raise UsageError(f"{source.name}: cannot be read ({error.strerror}); expected a log or a metrics dump") from error


def _chunks(path: Path | None) -> Iterator[bytes]:
    with contextlib.nullcontext(sys.stdin.buffer) if path is None else path.open("rb") as opened:
        # read1 hands over what a pipe holds now instead of waiting for a whole block
        read = getattr(opened, "read1", opened.read)
        while chunk := read(BLOCK_BYTES):
            yield chunk


def _follow(path: Path, wait: Callable[[float], None]) -> Iterator[bytes]:
    """Goes on at the end of the file; starts over where the file was rotated or cut. Ends only from outside."""
    opened = path.open("rb")
    try:
        while True:
            if chunk := opened.read(BLOCK_BYTES):
                yield chunk
                continue
            yield b""
            wait(FOLLOW_WAIT_S)
            with contextlib.suppress(OSError):  # between the two steps of a rotation
                now = path.stat()
                if now.st_ino != os.fstat(opened.fileno()).st_ino or now.st_size < opened.tell():
                    fresh = path.open("rb")
                    opened.close()
                    opened = fresh
                    yield b"\n"
    finally:
        opened.close()


def _decoded(raw: Iterator[bytes], source: Source) -> Iterator[bytes]:
    first = next(raw, b"")
    while 0 < len(first) < MAGIC_BYTES and (more := next(raw, b"")):
        first += more
    for magic, packer in _OTHER_PACKERS.items():
        if first.startswith(magic):
            raise UsageError(f"{source.name}: packed with {packer}; expected plain text or gzip: unpack it and pipe it in (-)")
    encoding = _UTF16.get(first[:2])
    if encoding is not None:
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        yield decoder.decode(first[2:]).encode()
        for chunk in raw:
            yield decoder.decode(chunk).encode()
    elif first.startswith(_GZIP):
        # small pieces: what stands before damaged data is handed on before the damage is met
        pieces = (
            chunk[at : at + PACKED_BYTES] for chunk in itertools.chain([first], raw) for at in range(0, len(chunk), PACKED_BYTES)
        )
        yield from _unpacked(pieces, source)
    else:
        yield first
        yield from raw


def _unpacked(raw: Iterator[bytes], source: Source) -> Iterator[bytes]:
    """Members of a gzip file one after the other, as `gzip -c >>` and log rotation make them."""
    unpacker, data, unpacked = zlib.decompressobj(wbits=31), next(raw), 0
    while True:
        try:
            piece = unpacker.decompress(data, UNPACKED_BYTES)
        except zlib.error as error:
            source.notes.append(f"the gzip data are damaged ({error}); what came before was read")
            return
        unpacked += len(piece)
        yield piece
        if unpacked > source.max_unpacked_bytes:
            source.notes.append(f"stopped after {unpacked} unpacked bytes; unpack it yourself and pipe it in (-) to read on")
            return
        data = unpacker.unconsumed_tail
        if unpacker.eof:
            data = unpacker.unused_data or next(raw, b"")
            if not data.lstrip(b"\0"):
                return
            unpacker = zlib.decompressobj(wbits=31)
        elif not data:
            data = next(raw, b"")
            if not data and not piece:
                source.notes.append("the gzip data are cut off; what came before was read")
                return


def _whole_lines(chunks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    rest, skipping = b"", False
    for chunk in chunks:
        source.num_bytes += len(chunk)
        if not chunk:
            yield b""
            continue
        if skipping:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            chunk, skipping = chunk[end:], False
        end = chunk.rfind(b"\n")
        if end < 0:
            rest += chunk
        else:
            yield rest + chunk[: end + 1]
            rest = chunk[end + 1 :]
        if len(rest) > MAX_LINE_BYTES:
            source.num_long_lines += 1
            rest, skipping = b"", True
    if rest:
        yield rest
