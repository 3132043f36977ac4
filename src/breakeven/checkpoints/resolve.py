"""From the name of a model to its folder on this machine. Never the network: a missing model is an error that says how to get it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from breakeven.checkpoints.cache import demo_model_path
from breakeven.errors import CheckpointError

__all__ = ["DEMO_PREFIX", "resolve_model"]

DEMO_PREFIX = "demo:"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def resolve_model(text: str, base: Path) -> Path:
    """The folder of `text`: a folder (relative to `base`), `demo:NAME`, or a hub id whose snapshot lies in the local hub cache.

    Raises:
        CheckpointError: nothing of that name on this machine; the message says what was looked at and what to run.
    """
    if text.startswith(DEMO_PREFIX):
        name = text.removeprefix(DEMO_PREFIX)
        path = demo_model_path(name)
        if not path.is_dir():
            raise CheckpointError(f"{text}: not fetched yet ({path} is missing); run: breakeven fetch {name}")
        return path
    path = (base / Path(text).expanduser()).resolve()
    if path.exists():
        return path
    if HUB_ID.fullmatch(text):
        return _hub_snapshot(text, path)
    raise CheckpointError(f"{text}: no such folder ({path}); expected a model folder, a hub id ORG/NAME or {DEMO_PREFIX}NAME")


def _hub_snapshot(hub_id: str, also_tried: Path) -> Path:
    repository = _hub_cache() / f"models--{hub_id.replace('/', '--')}"
    snapshots = repository / "snapshots"
    try:
        revision = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        revision = ""
    if revision and re.fullmatch(r"[0-9a-f]{7,64}", revision) and (snapshots / revision).is_dir():
        return snapshots / revision
    present = sorted(entry for entry in snapshots.iterdir() if entry.is_dir()) if snapshots.is_dir() else []
    if len(present) == 1:
        return present[0]
    raise CheckpointError(
        f"{hub_id}: neither a folder ({also_tried}) nor in the local hub cache ({repository}); "
        f"download it first, for instance: hf download {hub_id}"
    )


def _hub_cache() -> Path:
    """Where huggingface_hub keeps downloads, by its own environment variables."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface"
    return Path(home).expanduser() / "hub"
