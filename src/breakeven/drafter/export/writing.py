"""Write a head's folder, all at once or not at all, and read it back before anyone else does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.checkpoints.model_folder import model_folder
from breakeven.drafter.evaluation.result import Evaluation
from breakeven.drafter.export.head_config import Engines, doubts_of, head_config, refuse_inexpressible
from breakeven.drafter.export.provenance import PROVENANCE_NAME, Provenance, target_provenance, tensor_hashes
from breakeven.drafter.export.tensors import checkpoint_tensors
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.errors import CheckpointError

__all__ = ["Exported", "write_head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    folder: Path
    num_bytes: int
    config: dict[str, Any]
    provenance: Provenance


def write_head(
    config: Eagle3Config,
    weights: Eagle3Weights,
    target: ModelFolder,
    out: Path,
    *,
    engines: Engines = "both",
    dtype: torch.dtype = torch.bfloat16,
    source_format: str = "breakeven",
    training: dict[str, Any] | None = None,
    metrics: Evaluation | None = None,
    replaces: bool = False,
) -> Exported:
    """Write `out` (which must not exist, unless this `replaces` it) for the engines named, and check that reading it gives the head
    that was written.

    Raises:
        CheckpointError: something of the head cannot be expressed for these engines, `out` is there, or the disk is full.
    """
    refuse_inexpressible(config, weights, engines)
    tensors = checkpoint_tensors(config, weights, dtype)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{name} holds NaN or infinity in {dtype}; a head like that drafts nothing, so it is not exported"
            )
    written = head_config(config, target, engines, dtype)
    provenance = Provenance(
        source_format=source_format,
        engines=engines,
        target=target_provenance(target),
        training=training,
        metrics=metrics,
        tensor_sha256=tensor_hashes(tensors),
        doubts=doubts_of(config, target, engines),
    )
    with model_folder(out, replaces=replaces) as building:
        save_file(tensors, building / "model.safetensors", metadata={"format": "pt"})
        (building / "config.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
        (building / PROVENANCE_NAME).write_text(provenance.model_dump_json(indent=2) + "\n", encoding="utf-8")
        _check_read_back(building, target, config, tensors, dtype)
    return Exported(folder=out, num_bytes=sum(file.stat().st_size for file in out.iterdir()), config=written, provenance=provenance)


def _check_read_back(
    folder: Path, target: ModelFolder, config: Eagle3Config, tensors: dict[str, Tensor], dtype: torch.dtype
) -> None:
    opened = open_folder(folder)
    read = Eagle3Config.from_folder(opened, LlamaConfig.from_folder(target))
    assert read.auxiliary_layers == config.auxiliary_layers, (read.auxiliary_layers, config.auxiliary_layers)
    again = checkpoint_tensors(read, Eagle3Weights.from_folder(opened, read, dtype), dtype)
    different = [name for name in tensors if not torch.equal(tensors[name], again[name])]
    assert not different, different
