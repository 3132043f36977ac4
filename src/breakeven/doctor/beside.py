"""Files beside a model's weights that say where it comes from: provenance, chat template, quantization of some exporters.

All of them are optional and untrusted: too large, broken or linked out of the folder counts as absent.
"""

from __future__ import annotations

import hashlib
import itertools
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
CARD = "README.md"
# What trainers and merge tools call the model that a head was made for.
_TARGET_KEYS = ("target_model_name_or_path", "target_model", "base_model_name_or_path", "base_model", "verifier_name_or_path")


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
    """Breakeven's provenance, else the verifier of a speculators folder, the keys of other trainers, the model card's base_model;
    None where nothing says."""
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
    for key in _TARGET_KEYS:
        if (named := _text(config.get(key))) is not None:
            return TrainedFor(name=named, source=f"config.json: {key}")
    card = _base_of_card(folder)
    return TrainedFor(name=card, source=f"{CARD}: base_model") if card is not None else None


def _base_of_card(folder: Path) -> str | None:
    """`base_model` of a model card's front matter; None where there are several, which may be merged models or datasets' owners."""
    file = side_file(folder, CARD)
    try:
        if file is None or file.stat().st_size > MAX_TEMPLATE_BYTES:
            return None
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    if not lines or lines[0].strip() != "---":
        return None
    front = list(itertools.takewhile(lambda line: line.strip() != "---", lines[1:]))
    for place, line in enumerate(front):
        if not line.startswith("base_model:"):
            continue
        value = line.removeprefix("base_model:").strip()
        items = [one.strip() for one in value.strip("[]").split(",")] if value else []
        items += [one.strip()[1:] for one in itertools.takewhile(lambda one: one.lstrip().startswith("-"), front[place + 1 :])]
        named = [text for one in items if (text := _text(one.strip(" '\"")))]
        return named[0] if len(named) == 1 else None
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value) < 1000 else None
