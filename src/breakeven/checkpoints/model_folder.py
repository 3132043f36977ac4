"""A model's folder: whole or not at all, and never in place of another one unless that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from breakeven.errors import CheckpointError
from breakeven.whole import whole_folder

__all__ = ["model_folder"]


@contextmanager
def model_folder(out: Path, *, replaces: bool = False) -> Iterator[Path]:
    """A new folder to write a model into, which becomes `out` when the block ends; `replaces` what stood there, or must not.

    Raises:
        CheckpointError: `out` is there already or cannot be written; what stood there still does.
    """
    if not replaces and (out.exists() or out.is_symlink()):
        raise CheckpointError(f"{out}: is there already; choose another folder or remove it")
    try:
        with whole_folder(out, replaces=replaces) as building:
            yield building
    except (OSError, SafetensorError) as error:
        if not replaces and out.exists():
            raise CheckpointError(f"{out}: somebody else has written it in the meantime; choose another folder") from error
        why = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{out}: cannot be written ({why}); free some disk or choose another folder") from error
