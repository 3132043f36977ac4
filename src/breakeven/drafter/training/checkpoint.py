"""Checkpoints that a kill at any moment leaves whole.

`checkpoints/step-NNNNNNNN/` holds `tensors.safetensors` (weights in float32 and the optimiser's state) and `state.json`. Training
draws no random numbers after its first weights, and the order of samples follows from seed and step, so there is nothing else to
keep.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from breakeven.errors import StoreError
from breakeven.whole import UNFINISHED, whole_folder

__all__ = [
    "Checkpoint",
    "newest_checkpoint",
    "read_checkpoint",
    "read_state",
    "remove_old",
    "write_checkpoint",
    "write_folder",
]

SCHEMA_VERSION = 1
FOLDER = "checkpoints"
NAME = re.compile(r"step-(\d{8})")
TENSORS, STATE = "tensors.safetensors", "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`facts` are plain JSON: the plan, the scales, the best so far."""

    step: int  # optimiser steps done
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    facts: Mapping[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write under `folder`/checkpoints; returns the checkpoint's folder.

    Raises:
        StoreError: disk full or no permission; what was there before is untouched.
    """
    tensors = {f"weights.{name}": tensor for name, tensor in checkpoint.weights.items()}
    tensors |= {f"optimiser.{name}": tensor for name, tensor in checkpoint.optimiser.items()}
    state = {"schema_version": SCHEMA_VERSION, "step": checkpoint.step, **checkpoint.facts}
    return write_folder(folder / FOLDER / f"step-{checkpoint.step:08d}", {TENSORS: tensors, STATE: state})


def write_folder(path: Path, files: Mapping[str, Mapping[str, Any]]) -> Path:
    """A folder that is there with all its files or not at all. A name ending in .safetensors takes tensors, another one JSON.

    Raises:
        StoreError: disk full or no permission.
    """
    try:
        with whole_folder(path, replaces=True) as beside:
            for name, content in files.items():
                if name.endswith(".safetensors"):
                    save_file({key: tensor.contiguous() for key, tensor in content.items()}, beside / name)
                else:
                    (beside / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"{path}: cannot be written ({error}); free some space or name another folder, then start again: "
            "training goes on from the last checkpoint"
        ) from error
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a training, and none where there is none."""
    if not (folder / FOLDER).is_dir():
        return None
    found = sorted(path for path in (folder / FOLDER).iterdir() if NAME.fullmatch(path.name))
    return found[-1] if found else None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint that `write_checkpoint` wrote.

    Raises:
        StoreError: damaged, or written by a newer version.
    """
    step, state = read_state(path)
    try:
        tensors = load_file(path / TENSORS)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from error

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    return Checkpoint(step=step, weights=part("weights."), optimiser=part("optimiser."), facts=state)


def read_state(path: Path) -> tuple[int, dict[str, Any]]:
    """The step of a checkpoint and what is known beside its tensors, which are not read.

    Raises:
        StoreError: damaged, or written by a newer version.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        version, step = state.pop("schema_version"), int(state.pop("step"))
    except (OSError, ValueError, LookupError, AttributeError) as error:
        raise _damaged(path, error) from error
    if version != SCHEMA_VERSION:
        raise StoreError(f"{path}: checkpoint of schema {version}; expected {SCHEMA_VERSION}: go on with that newer version")
    return step, state


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path}: damaged ({error}); remove this folder, and training goes on from the one before")


def remove_old(folder: Path, keep: int) -> None:
    """Keep the newest `keep` checkpoints, and nothing half-written."""
    found = sorted(path for path in (folder / FOLDER).iterdir() if NAME.fullmatch(path.name))
    for path in [*found[:-keep], *(folder / FOLDER).glob(UNFINISHED)]:
        shutil.rmtree(path, ignore_errors=True)
