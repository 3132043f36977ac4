"""A model folder as data: `config.json` and the safetensors headers, read without torch and without trust.

Only headers are read, so a 600 GB target opens in milliseconds. Nothing in a folder is executed: pickles are refused. Links are
followed only where they stay inside the folder, or inside the same repository of a Hugging Face hub cache (whose snapshots are
links into `blobs/`): a folder from a stranger cannot make us read another file of this machine.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breakeven.checkpoints.headers import TensorInfo, printable, read_header, read_json
from breakeven.errors import CheckpointError

__all__ = ["ModelFolder", "TensorInfo", "fingerprint", "open_folder", "own_file", "side_file"]

MAX_SHARDS = 10_000
# Over all shards; the largest public checkpoints hold about 210 000 (packed weight, scale and shape of every expert).
MAX_TENSORS = 500_000
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt", "model.bin")
FINGERPRINT_DATA_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """`tensors` says where each tensor lies; no weight has been read."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo] = field(repr=False)


def open_folder(path: Path) -> ModelFolder:
    """Read a model or drafter folder's configuration and tensor headers.

    Raises:
        CheckpointError: the folder, its configuration or its weights are missing, truncated, of another format or hostile.
    """
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be opened ({error.strerror}); expected a model folder") from error
    if not is_folder:
        found = "a file" if exists else "nothing there"
        raise CheckpointError(f"{path}: {found}; expected a model folder with config.json and *.safetensors")
    inside = _allowed_root(path)
    config = read_json(_checked(path / "config.json", inside))
    tensors: dict[str, TensorInfo] = {}
    for file in _weight_files(path, inside):
        for name, info in read_header(file).items():
            if name in tensors:
                raise CheckpointError(
                    f"{file}: tensor {printable(name)} stands in {tensors[name].file.name} too; expected it once. "
                    "Are there two formats of the same model in this folder?"
                )
            tensors[name] = info
        if len(tensors) > MAX_TENSORS:
            raise CheckpointError(f"{path}: more than {MAX_TENSORS} tensors; expected the weights of one model")
    return ModelFolder(path=path, config=config, tensors=tensors)


def fingerprint(folder: ModelFolder) -> str:
    """Sixteen hex digits over the configuration, the tensor headers, the files' sizes and the first 64 kB of each file's data.

    Cheap, so that it can be taken of any model at any start: it tells which folder a run used. Two checkpoints that differ only
    in later weights of equal shape look the same, so it does not prove integrity.

    Raises:
        CheckpointError: a file has gone since the folder was opened.
    """
    digest = hashlib.sha256(json.dumps(folder.config, sort_keys=True, default=str).encode())
    for name, info in sorted(folder.tensors.items()):
        digest.update(f"{name} {info.dtype} {info.shape} {info.end - info.begin}\n".encode())
    for file in sorted({info.file for info in folder.tensors.values()}):
        try:
            with file.open("rb") as opened:
                opened.seek(8 + struct.unpack("<Q", opened.read(8))[0])
                digest.update(opened.read(FINGERPRINT_DATA_BYTES))
            digest.update(str(file.stat().st_size).encode())
        except (OSError, struct.error) as error:
            raise CheckpointError(f"{file}: changed while it was read ({error}); leave model folders alone during a run") from error
    return digest.hexdigest()[:16]


def own_file(path: Path, name: str, *, max_bytes: int) -> Path | None:
    """A file of the folder that is to be read whole; None where there is none.

    Raises:
        CheckpointError: a link out of the folder, no regular file, or larger than `max_bytes`.
    """
    file = _checked(path / name, _allowed_root(path))
    try:
        if not file.exists():
            return None
        size = file.stat().st_size
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); check its permissions and the disk") from error
    if not file.is_file():
        raise CheckpointError(f"{file}: not a regular file; fetch the model again")
    if size > max_bytes:
        raise CheckpointError(f"{file}: {size} bytes; expected at most {max_bytes}: damaged, fetch it again")
    return file


def side_file(path: Path, name: str) -> Path | None:
    """A regular file beside the weights (a chat template, say) that is no link out of the folder; None where there is none."""
    file = path / name
    try:
        return file if _checked(file, _allowed_root(path)).is_file() else None
    except (CheckpointError, OSError):
        return None


def _allowed_root(path: Path) -> Path:
    resolved = path.resolve()
    repository = resolved.parent.parent
    in_hub_cache = resolved.parent.name == "snapshots" and repository.name.startswith("models--")
    return repository if in_hub_cache else resolved


def _checked(file: Path, inside: Path) -> Path:
    try:
        leads_out = file.is_symlink() and not file.resolve().is_relative_to(inside)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{file}: a link that leads back to itself; fetch the model again") from error
    if leads_out:
        raise CheckpointError(
            f"{file}: a link to {file.resolve()}, outside {inside}; links out of a model folder are not followed: "
            "put the file itself there, or name the folder it lies in"
        )
    return file


def _weight_files(path: Path, inside: Path) -> list[Path]:
    index = _checked(path / "model.safetensors.index.json", inside)
    files = _files_of_index(path, index) if index.is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        pickles = [name for name in PICKLES if (path / name).exists()]
        advice = (
            f"found {pickles[0]}, which is a pickle and can run code when loaded: convert it to safetensors first, "
            "or take a revision of the model that has safetensors"
            if pickles
            else "expected model.safetensors; was the download complete?"
        )
        raise CheckpointError(f"{path}: no safetensors weights; {advice}")
    for file in files:
        _checked(file, inside)
        if not file.is_file():
            what = "a link to nothing" if file.is_symlink() else "not a regular file" if file.exists() else "missing"
            raise CheckpointError(f"{file}: {what}; the download is incomplete, fetch the model again")
    return files


def _files_of_index(path: Path, index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: no weight_map; expected a table from tensor names to files")
    names = {name if isinstance(name, str) else "" for name in weight_map.values()}
    if len(names) > MAX_SHARDS:
        raise CheckpointError(f"{index}: names {len(names)} files; expected at most {MAX_SHARDS}")
    for name in names:
        if not name or not name.isprintable() or Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index}: names the file {printable(name)}; expected *.safetensors of the same folder")
    return [path / name for name in sorted(names)]
