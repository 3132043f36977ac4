"""Where a model named by the user lies on this machine: a folder, `demo:NAME`, or a hub id in the local hub cache.

Never the network: what is not here is reported together with the command that fetches it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from breakeven.checkpoints.cache import demo_model_path
from breakeven.checkpoints.named_path import named_path
from breakeven.errors import CheckpointError

__all__ = ["hub_cache_dir", "resolve_model"]

_HUB_ID = re.compile(r"(?P<owner>[A-Za-z0-9][\w.-]*)/(?P<name>[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w.-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_cache_dir() -> Path:
    """Where huggingface_hub keeps its downloads, by its own environment variables in its own order."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if configured := os.environ.get(variable):
            return Path(configured).expanduser()
    if configured := os.environ.get("HF_HOME"):
        return Path(configured).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def resolve_model(text: str, base_dir: Path) -> Path:
    """The folder that `text` names: a path (relative ones from `base_dir`), `demo:NAME`, or `OWNER/NAME[@REVISION]`.

    An existing folder wins over a hub id of the same spelling. The folder is not opened.

    Raises:
        CheckpointError: nothing is there; the message lists what was tried and how to fetch it.
        UsageError: no folder can have that name.
    """
    if not text.strip() or not text.isprintable():
        raise CheckpointError(f"a model is named {text!a}; expected a folder, demo:NAME or a hub id such as owner/name")
    if text.startswith("demo:"):
        name = text.removeprefix("demo:")
        folder = demo_model_path(name)
        if not folder.is_dir():
            raise CheckpointError(f"{text}: not fetched yet, {folder} does not exist; run: breakeven fetch {name}")
        return folder
    folder = named_path(text, base_dir)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{text}: {folder} is a file; expected a model folder (name the folder that holds it)")
    hub_id = _HUB_ID.fullmatch(text)
    if hub_id is None:
        raise CheckpointError(
            f"{text}: there is no folder {folder}; expected a model folder, demo:NAME or a hub id such as owner/name"
        )
    return _from_hub_cache(text, hub_id["owner"], hub_id["name"], hub_id["revision"], folder)


def _from_hub_cache(text: str, owner: str, name: str, revision: str | None, tried: Path) -> Path:
    repository = hub_cache_dir() / f"models--{owner}--{name}"
    snapshots = repository / "snapshots"
    wanted = revision or "main"
    try:
        commit = wanted if _COMMIT.fullmatch(wanted) else (repository / "refs" / wanted).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        commit = ""
    if _COMMIT.fullmatch(commit) and (snapshots / commit).is_dir():
        return snapshots / commit
    # a download by commit writes no refs; with one snapshot there is no doubt which is meant
    present = sorted(snapshots.iterdir()) if snapshots.is_dir() else []
    if revision is None and len(present) == 1 and present[0].is_dir():
        return present[0]
    at = f" --revision {revision}" if revision else ""
    found = f"it holds the snapshots {', '.join(folder.name[:12] for folder in present[:5])}" if present else "it holds no snapshot"
    where = (
        f"in the hub cache ({repository}: {found})" if repository.is_dir() else f"in the hub cache ({repository} does not exist)"
    )
    raise CheckpointError(
        f"{text}: neither a folder ({tried}) nor {where}. "
        f"Breakeven downloads no such model by itself; run: hf download {owner}/{name}{at}"
    )
