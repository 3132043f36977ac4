"""From a head's folder in any layout to a folder that the engines read: what `breakeven export` does."""

from __future__ import annotations

from pathlib import Path

import torch

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.export.head_config import Engines
from breakeven.drafter.export.provenance import read_provenance
from breakeven.drafter.export.reading import ImportedHead, read_head
from breakeven.drafter.export.writing import Exported, write_head

__all__ = ["DTYPES", "export_folder"]

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def export_folder(draft: Path, target: Path, out: Path, *, engines: Engines, dtype: str) -> tuple[ImportedHead, Exported]:
    """Read the head in `draft`, made for `target`, and write it to `out`. What an earlier export knew of its training is kept.

    Raises:
        CheckpointError: see `read_head` and `write_head`.
    """
    target_folder = open_folder(target)
    head = read_head(draft, target_folder)
    before = read_provenance(draft)
    exported = write_head(
        head.config,
        head.weights,
        target_folder,
        out,
        engines=engines,
        dtype=DTYPES[dtype],
        source_format=head.source_format if before is None else before.source_format,
        training=before.training if before is not None else None,
        metrics=before.metrics if before is not None else None,
    )
    return head, exported
