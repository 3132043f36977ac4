"""Writes the states of many samples to disk, shard by shard. Killed at any moment, the same call goes on where it stopped.

Each shard is written beside its place, flushed, renamed, and only then named in `finished.jsonl`: what is named there is whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.capture.store_format import (
    KEY_BYTES,
    LINES,
    MANIFEST,
    TARGET,
    FileLine,
    Manifest,
    read_lines,
    read_manifest,
    sample_key,
    shard_name,
)
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.folder_lock import LOCK, folder_lock
from breakeven.errors import StoreError
from breakeven.units import format_bytes
from breakeven.whole import UNFINISHED, whole_file

__all__ = ["Progress", "check_space", "store_states"]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After each shard; `num_tokens` and `num_bytes` are those of all finished shards, of this call and before."""

    num_shards: int
    num_tokens: int
    num_bytes: int


def check_space(folder: Path, manifest: Manifest) -> tuple[int, int]:
    """(bytes still to be written, bytes free) where `folder` is or will be.

    Raises:
        StoreError: the disk has too little room, or the folder holds other states.
    """
    needed = manifest.total_bytes
    if (folder / MANIFEST).is_file():
        _check_same(folder, manifest)
        done = _finished(folder, manifest)
        needed = sum(manifest.shard_bytes(index) for index in range(len(manifest.shards)) if shard_name(index) not in done)
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise StoreError(
            f"{folder}: {format_bytes(needed)} of states ({manifest.num_tokens} tokens x 4 x {manifest.hidden_size} x "
            f"{manifest.dtype}) do not fit in the {format_bytes(free)} that are free; store fewer samples, or train "
            "without storing states"
        )
    return needed, free


def store_states(
    folder: Path,
    manifest: Manifest,
    samples: Sequence[Sample],
    open_capture: Callable[[], Capture],
    *,
    tell: Callable[[Progress], None] = lambda _progress: None,
) -> int:
    """Write every shard of `manifest` that is not there yet; returns how many were written.

    open_capture: loads the target; called only if something is left to do.

    Raises:
        StoreError: the folder holds other states, another process writes there, or the disk is full (finished shards are kept).
        DataError, CheckpointError: what the capture finds wrong; finished shards are kept.
    """
    with folder_lock(folder, doing="storing states", advice="take another --out"):
        if (folder / MANIFEST).exists():
            _check_same(folder, manifest)
        elif any(file.name != LOCK and not fnmatch(file.name, UNFINISHED) for file in folder.iterdir()):
            raise StoreError(f"{folder}: not empty, and not a folder of stored states; take another --out")
        else:
            _write_whole(folder / MANIFEST, manifest.text().encode(), "the manifest")
        finished = _finished(folder, manifest)
        missing = [index for index in range(len(manifest.shards)) if shard_name(index) not in finished]
        if not missing and TARGET in finished:
            return 0
        capture = open_capture()
        if TARGET not in finished:
            _finish(folder / TARGET, save(_target_tensors(capture)), TARGET)
        shards = {index: finished[shard_name(index)] for index in range(len(manifest.shards)) if index not in missing}
        for index in missing:
            first, end, _ = manifest.shards[index]
            states = capture.capture(samples[first:end])
            capture.settle()  # whoever opened it may defer; broken numbers are found before they are stored
            content = save(_shard_tensors(states, samples[first:end]))
            shards[index] = _finish(folder / shard_name(index), content, f"shard {index + 1} of {len(manifest.shards)}")
            tell(
                Progress(
                    num_shards=len(shards),
                    num_tokens=sum(manifest.shards[done][2] for done in shards),
                    num_bytes=sum(line.num_bytes for line in shards.values()),
                )
            )
        return len(missing)


def _shard_tensors(states: PackedStates, samples: Sequence[Sample]) -> dict[str, Tensor]:
    keys = bytearray(b"".join(map(sample_key, samples)))
    return {
        "keys": torch.frombuffer(keys, dtype=torch.uint8).view(len(samples), KEY_BYTES),
        "token_ids": states.token_ids.int().cpu(),
        "loss_mask": states.loss_mask.cpu(),
        "starts": states.starts.cpu(),
        "auxiliary": states.auxiliary.cpu(),
        "last": states.last.cpu(),
    }


def _target_tensors(capture: Capture) -> dict[str, Tensor]:
    embed, head = capture.embed_weight, capture.head_weight()
    tensors = {"embed": embed.cpu().contiguous()}
    if head.data_ptr() != embed.data_ptr():
        tensors["head"] = head.cpu().contiguous()
    return tensors


def _check_same(folder: Path, manifest: Manifest) -> None:
    there = read_manifest(folder)
    for name in ("fingerprint", "layers", "dtype", "hidden_size", "samples_sha256", "shards"):
        found, wanted = getattr(there, name), getattr(manifest, name)
        if found != wanted:
            what = {
                "fingerprint": "of another target",
                "samples_sha256": f"of other samples ({there.num_samples} with {there.num_tokens} tokens)",
                "shards": "cut into other shards",
            }.get(name, f"with {name} {found} instead of {wanted}")
            raise StoreError(f"{folder}: holds states {what}; take another --out, or remove the folder")


def _finished(folder: Path, manifest: Manifest) -> dict[str, FileLine]:
    """Files that are named and there in full size; the reader holds them against their hashes."""
    sizes = {file.name: file.stat().st_size for file in folder.glob("*.safetensors")}
    return {name: line for name, line in read_lines(folder, manifest).items() if sizes.get(name) == line.num_bytes}


def _finish(path: Path, content: bytes, what: str) -> FileLine:
    _write_whole(path, content, what)
    line = FileLine(file=path.name, num_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    _append(path.with_name(LINES), line, what)
    return line


def _write_whole(path: Path, content: bytes, what: str) -> None:
    with _disk_errors(path, what):
        with whole_file(path, replaces=True) as opened:
            opened.write(content)
        _sync_folder(path.parent)


def _append(path: Path, line: FileLine, what: str) -> None:
    text = json.dumps(asdict(line))
    with _disk_errors(path, what), path.open("a+b") as opened:
        # what a kill left of a line without its end is dropped, else the next line would be glued to it
        opened.seek(0)
        whole = opened.read().rfind(b"\n") + 1
        opened.truncate(whole)
        opened.write(text.encode() + b"\n")
        opened.flush()
        os.fsync(opened.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _disk_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoreError(
                f"{path}: the disk was full at {what} ({error.strerror}); what was finished before is kept: make room and run the "
                "same command again"
            ) from error
        raise StoreError(f"{path}: cannot be written ({error.strerror}); what was finished before is kept") from error
