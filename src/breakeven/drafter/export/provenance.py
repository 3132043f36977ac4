"""Where an exported head comes from: `provenance.json` beside its weights.

It says for which target the head was made, down to hashes of weights, tokenizer and chat template, from which data, and how well it
did. What is not known is null, never guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from breakeven import __version__
from breakeven.checkpoints.folder import ModelFolder, fingerprint, own_file
from breakeven.drafter.evaluation.result import Evaluation
from breakeven.errors import CheckpointError

__all__ = ["PROVENANCE_NAME", "Provenance", "TargetProvenance", "read_provenance", "target_provenance", "tensor_hashes"]

PROVENANCE_NAME = "provenance.json"
SCHEMA_VERSION = 1
MAX_BYTES = 10_000_000


class TargetProvenance(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    fingerprint: str = Field(description="Of configuration, tensor headers and the first bytes of each weight file")
    quantization: str | None = Field(description="quant_method of the target's quantization_config, null where there is none")
    tokenizer_sha256: str | None
    template_sha256: str | None = Field(description="Of the chat template in the target's folder")


class Provenance(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    breakeven_version: str = __version__
    written_at: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    source_format: str = Field(description="Whose folder layout the head was read from, or breakeven")
    engines: str
    target: TargetProvenance
    training: dict[str, Any] | None = Field(default=None, description="Data hashes, steps and settings, as the trainer gave them")
    metrics: Evaluation | None = None
    tensor_sha256: dict[str, str] = {}
    doubts: tuple[str, ...] = ()


def target_provenance(target: ModelFolder) -> TargetProvenance:
    """What identifies a target folder. Files that are not there are null.

    Raises:
        CheckpointError: one of them is a link out of the folder, or no regular file.
    """
    quantization = target.config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    return TargetProvenance(
        name=target.path.resolve().name,
        fingerprint=fingerprint(target),
        quantization=str(method) if method is not None else None,
        tokenizer_sha256=_file_hash(target.path, "tokenizer.json"),
        template_sha256=_template_hash(target.path),
    )


def read_provenance(folder: Path) -> Provenance | None:
    """What an earlier export left beside a head; None where there is none.

    Raises:
        CheckpointError: a file of that name that is not one of ours, newer than this version, or a link out of the folder.
    """
    file = own_file(folder, PROVENANCE_NAME, max_bytes=MAX_BYTES)
    if file is None:
        return None
    try:
        return Provenance.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise CheckpointError(f"{file}: not the provenance of a head ({first}); remove it, or update breakeven") from error


def tensor_hashes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """SHA-256 of each tensor's bytes as stored."""
    return {
        name: hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }


def _file_hash(folder: Path, name: str) -> str | None:
    from breakeven.drafter.serving.tokenizer import MAX_TOKENIZER_BYTES

    file = own_file(folder, name, max_bytes=MAX_TOKENIZER_BYTES)
    try:
        return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def _template_hash(folder: Path) -> str | None:
    """Of the template's text, wherever it stands: two folders that render alike have one hash."""
    from breakeven.drafter.serving.tokenizer import TextTokenizer

    if not (folder / "tokenizer.json").is_file():
        return None
    template = TextTokenizer.from_folder(folder).chat_template
    return hashlib.sha256(template.source.encode()).hexdigest() if template is not None else None
