"""Files beside a model's weights that say where it comes from: provenance, chat template, quantization of some exporters.

All of them are optional and untrusted: too large, broken or linked out of the folder counts as absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.checkpoints.folder import side_file
from breakeven.checkpoints.headers import read_json
from breakeven.errors import CheckpointError

__all__ = ["TrainedFor", "chat_template", "side_json", "text_hash", "trained_for"]

MAX_TEMPLATE_BYTES = 1_000_000
PROVENANCE = "provenance.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedFor:
    """The target that a drafter's own files name; `source` is the file and key. What is not stated is None."""

    name: str | None
    fingerprint: str | None = None
    template_sha256: str | None = None
    source: str


def side_json(folder: Path, name: str) -> Mapping[str, Any]:
    """A JSON object beside the weights; empty where there is none that can be read."""
    file = side_file(folder, name)
    try:
        return read_json(file) if file is not None else {}
    except CheckpointError:
        return {}


def chat_template(folder: Path) -> str | None:
    """The template that servers render chats with: `chat_template.jinja`, else the tokenizer's configuration."""
    file = side_file(folder, "chat_template.jinja")
    try:
        if file is not None and file.stat().st_size <= MAX_TEMPLATE_BYTES:
            return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    value = side_json(folder, "tokenizer_config.json").get("chat_template")
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    return value if isinstance(value, str) and value else None


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def trained_for(folder: Path, config: Mapping[str, Any]) -> TrainedFor | None:
    """Breakeven's provenance, else the verifier of a speculators folder; None where nothing says."""
    target = side_json(folder, PROVENANCE).get("target")
    if isinstance(target, dict):
        return TrainedFor(
            name=_text(target.get("name")),
            fingerprint=_text(target.get("fingerprint")),
            template_sha256=_text(target.get("template_sha256")),
            source=f"{PROVENANCE}: target",
        )
    speculators = config.get("speculators_config")
    verifier = speculators.get("verifier") if isinstance(speculators, dict) else None
    if isinstance(verifier, dict) and _text(verifier.get("name_or_path")):
        return TrainedFor(name=_text(verifier.get("name_or_path")), source="config.json: speculators_config.verifier.name_or_path")
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) < 1000 else None
