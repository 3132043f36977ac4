"""What a capture to disk will hold, worked out from files alone: its size can be said before a target is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.checkpoints.folder import fingerprint, open_folder
from breakeven.checkpoints.random_head import auxiliary_layers
from breakeven.drafter.capture.store_format import DTYPES, Manifest, planned_manifest
from breakeven.drafter.data.prompt_records import Split
from breakeven.drafter.data.reading import ReadReport, read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import CheckpointError, DataError, UsageError

__all__ = ["PlannedCapture", "plan_capture"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCapture:
    """`report` counts what of the training file was left out."""

    manifest: Manifest
    samples: tuple[Sample, ...]
    report: ReadReport


def plan_capture(
    training_file: Path,
    target: TargetFiles,
    *,
    split: Split,
    layers: Sequence[int] | None,
    dtype: str,
    max_tokens: int | None = None,
) -> PlannedCapture:
    """Read the samples of one side of the split and plan their shards.

    layers: three layer inputs; None takes those that a new head is trained on: 2, the middle, and the last but two.
    dtype: one of `store_format.DTYPES`.
    max_tokens: samples are cut there, None for the target's context.

    Raises:
        DataError: the file is damaged, another target's, or has no samples of this side.
        CheckpointError: the target's configuration names no sizes.
        UsageError: layers that the target does not have.
    """
    folder = open_folder(target.folder)
    sizes = _sizes(folder.config, target.folder)
    num_layers = sizes["num_hidden_layers"]
    try:
        chosen = tuple(layers) if layers is not None else auxiliary_layers(num_layers)
    except ValueError as error:
        raise UsageError(f"{target.folder}: {error}") from error
    if len(chosen) != 3 or list(chosen) != sorted(set(chosen)) or not 0 <= chosen[0] <= chosen[2] < num_layers:
        raise UsageError(f"--layers {list(chosen)}; expected three different layer inputs of 0 to {num_layers - 1}, low to high")
    report = ReadReport()
    samples = tuple(read_samples(training_file, split=split, target=target, max_tokens=max_tokens, report=report))
    if not samples:
        raise DataError(f"{training_file}: no samples on the {split} side of the split; there is nothing to capture")
    manifest = planned_manifest(
        samples,
        target=target.identity.name,
        fingerprint=fingerprint(folder),
        architecture=str((folder.config.get("architectures") or ["unknown"])[0]),
        layers=(chosen[0], chosen[1], chosen[2]),
        dtype=DTYPES[dtype],
        hidden_size=sizes["hidden_size"],
        vocab_size=sizes["vocab_size"],
        num_layers=num_layers,
    )
    return PlannedCapture(manifest=manifest, samples=samples, report=report)


def _sizes(config: Mapping[str, Any], path: Path) -> dict[str, int]:
    """Sizes of the language model, which multimodal configurations keep one level down."""
    text = config.get("text_config")
    found = {**config, **(text if isinstance(text, dict) else {})}
    sizes = {}
    for key in ("hidden_size", "num_hidden_layers", "vocab_size"):
        value = found.get(key)
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{path}/config.json: {key} is {value!r}; expected a positive whole number")
        sizes[key] = value
    return sizes
