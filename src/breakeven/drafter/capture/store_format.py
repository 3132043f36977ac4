"""What a folder of stored states holds, and the words and checks that its writer and its reader share.

    manifest.json            target, layers, dtype, sizes, and which samples each shard holds; written first
    target.safetensors       the target's embedding, and its head where that is another tensor
    states-00000.safetensors one shard: tokens, masks, starts and states of consecutive samples
    finished.jsonl           one line a finished file: bytes and SHA-256; a file without its line is written again

Shapes: N tokens and S samples of a shard, H hidden, V vocabulary. Keys name samples by what they are, not by where they came from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from breakeven.drafter.capture.packing import groups_within
from breakeven.drafter.data.samples import Sample
from breakeven.errors import StoreError

__all__ = [
    "DTYPES",
    "LINES",
    "MANIFEST",
    "SCHEMA_VERSION",
    "TARGET",
    "FileLine",
    "Manifest",
    "planned_manifest",
    "read_lines",
    "read_manifest",
    "sample_key",
    "shard_name",
]

SCHEMA_VERSION = 1
KIND_OF_FILE = "target states"
MANIFEST, LINES, TARGET = "manifest.json", "finished.jsonl", "target.safetensors"
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
# A shard is what a kill can cost, and is held in memory twice while it is written.
SHARD_BYTES = 256 << 20
KEY_BYTES = 16
# Beside the states: ids, masks, starts, keys and headers.
TOKEN_BYTES_BESIDE, SAMPLE_BYTES_BESIDE, SHARD_BYTES_BESIDE = 5, 8 + KEY_BYTES, 1024
MAX_TEXT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`shards` are (first sample, past the last, tokens). `samples_sha256` is over the keys of all samples in order."""

    target: str
    fingerprint: str
    architecture: str
    layers: tuple[int, int, int]
    dtype: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    num_samples: int
    num_tokens: int
    samples_sha256: str
    shards: tuple[tuple[int, int, int], ...]

    @property
    def state_bytes(self) -> int:
        """Tokens x 4 x hidden size x bytes of a number: three auxiliary states and the last one."""
        return self.num_tokens * 4 * self.hidden_size * DTYPES[self.dtype].itemsize

    @property
    def total_bytes(self) -> int:
        """About what the folder will take, a little more rather than less."""
        beside = self.num_tokens * TOKEN_BYTES_BESIDE + self.num_samples * SAMPLE_BYTES_BESIDE
        target = 2 * self.vocab_size * self.hidden_size * DTYPES[self.dtype].itemsize
        return self.state_bytes + beside + len(self.shards) * SHARD_BYTES_BESIDE + target

    def shard_bytes(self, index: int) -> int:
        first, end, num_tokens = self.shards[index]
        states = num_tokens * (4 * self.hidden_size * DTYPES[self.dtype].itemsize + TOKEN_BYTES_BESIDE)
        return states + (end - first) * SAMPLE_BYTES_BESIDE + SHARD_BYTES_BESIDE

    def text(self) -> str:
        return json.dumps({"breakeven": KIND_OF_FILE, "schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    file: str
    num_bytes: int
    sha256: str


def sample_key(sample: Sample) -> bytes:
    """Sixteen bytes over token ids and loss mask."""
    digest = hashlib.blake2b(np.asarray(sample.token_ids, dtype="<i8").tobytes(), digest_size=KEY_BYTES)
    digest.update(np.asarray(sample.loss_mask, dtype=np.uint8).tobytes())
    return digest.digest()


def shard_name(index: int) -> str:
    return f"states-{index:05d}.safetensors"


def planned_manifest(
    samples: Sequence[Sample],
    *,
    target: str,
    fingerprint: str,
    architecture: str,
    layers: tuple[int, int, int],
    dtype: torch.dtype,
    hidden_size: int,
    vocab_size: int,
    num_layers: int,
    shard_bytes: int = SHARD_BYTES,
) -> Manifest:
    """What will be stored of `samples`; the same call plans the same shards, which is what makes a capture resumable."""
    name = next(name for name, known in DTYPES.items() if known == dtype)
    lengths = [len(sample.token_ids) for sample in samples]
    most = max(1, shard_bytes // (4 * hidden_size * dtype.itemsize))
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(sample_key(sample))
    return Manifest(
        target=target,
        fingerprint=fingerprint,
        architecture=architecture,
        layers=layers,
        dtype=name,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        num_layers=num_layers,
        num_samples=len(samples),
        num_tokens=sum(lengths),
        samples_sha256=digest.hexdigest(),
        shards=tuple((first, end, sum(lengths[first:end])) for first, end in groups_within(lengths, most)),
    )


def read_manifest(folder: Path) -> Manifest:
    """
    Raises:
        StoreError: none there, damaged, or of another schema.
    """
    file = folder / MANIFEST
    found = _json(_text(file), str(file))
    if found.get("breakeven") != KIND_OF_FILE:
        raise StoreError(f"{file}: not a manifest of stored states; expected a folder that breakeven data states wrote")
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        newer = type(version) is int and version > SCHEMA_VERSION
        advice = "update breakeven" if newer else "capture the states again"
        raise StoreError(f"{file}: stored states of schema {version!r}, this version reads {SCHEMA_VERSION}; {advice}")
    try:
        fields = {name: found[name] for name in Manifest.__dataclass_fields__}
        numbers = [*fields["layers"], *(number for shard in fields["shards"] for number in shard)]
        numbers += [fields[name] for name in ("hidden_size", "vocab_size", "num_layers", "num_samples", "num_tokens")]
        texts = [fields[name] for name in ("target", "fingerprint", "architecture", "samples_sha256")]
        if not all(type(number) is int and 0 <= number < 1 << 48 for number in numbers) or not all(type(t) is str for t in texts):
            raise ValueError("a field has the wrong type")
        if fields["dtype"] not in DTYPES or len(fields["layers"]) != 3 or any(len(shard) != 3 for shard in fields["shards"]):
            raise ValueError("dtype, layers or shards are none")
        fields |= {"layers": tuple(fields["layers"]), "shards": tuple(map(tuple, fields["shards"]))}
        return Manifest(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{file}: damaged ({error!r}); capture the states again into another folder") from error


def read_lines(folder: Path, manifest: Manifest) -> dict[str, FileLine]:
    """The finished files by name. A last line that was cut by a kill is left out, and so its file is unfinished.

    Raises:
        StoreError: another line is damaged.
    """
    file = folder / LINES
    if not file.is_file():
        return {}
    lines = _text(file).split("\n")
    known = {TARGET, *(shard_name(index) for index in range(len(manifest.shards)))}
    finished = {}
    for number, line in enumerate(lines[:-1], start=1):
        found = _json(line, f"{file}, line {number}")
        name, num_bytes, sha256 = (found.get(key) for key in ("file", "num_bytes", "sha256"))
        if type(name) is not str or name not in known or type(num_bytes) is not int or type(sha256) is not str:
            raise StoreError(f"{file}, line {number}: names no file of this folder; capture the states again into another folder")
        finished[name] = FileLine(file=name, num_bytes=num_bytes, sha256=sha256)
    return finished


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_TEXT_BYTES:
            raise StoreError(f"{file}: larger than {MAX_TEXT_BYTES} bytes; expected what breakeven data states wrote")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: cannot be read ({error}); expected a folder that breakeven data states wrote") from error


def _json(text: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where}: not JSON ({error}); capture the states again into another folder") from error
    if not isinstance(found, dict):
        raise StoreError(f"{where}: not a JSON object; capture the states again into another folder")
    return found
