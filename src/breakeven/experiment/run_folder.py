"""Which run a user names: by its folder, or by the database in it."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from breakeven.errors import StoreError

__all__ = ["DATABASE", "OTHER_FILES", "aside", "no_run", "run_folder"]

DATABASE = "run.sqlite"
# what a message names of a folder of runs, and how much of a folder is looked through for them
MAX_NAMED, MAX_LOOKED_AT = 8, 1000
# what bench, verdict and report read and write beside runs
OTHER_FILES = frozenset({".yaml", ".yml", ".json", ".csv", ".md", ".html"})


def run_folder(path: Path) -> Path:
    """The folder of the run that `path` names; `path` itself where it names none, for whoever reads it to say so."""
    return path.parent if path.name == DATABASE and path.is_file() else path


def aside(folder: Path) -> Path:
    """Give `folder` a name that nothing has, NAME.old-1 and so on; its new place.

    Raises:
        StoreError: it cannot be moved.
    """
    number = 1
    while (place := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    try:
        return folder.rename(place)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be moved to {place.name} ({error.strerror}); choose another --name") from error


def no_run(path: Path) -> StoreError:
    """Why `path` is no run, with those that lie in it where it is the folder of runs."""
    inside: list[str] = []
    with contextlib.suppress(OSError):
        entries = itertools.islice(path.iterdir(), MAX_LOOKED_AT) if path.is_dir() else ()
        inside = sorted(str(entry) for entry in entries if (entry / DATABASE).is_file())
    if inside:
        more = f" and {len(inside) - MAX_NAMED} more" if len(inside) > MAX_NAMED else ""
        return StoreError(f"{path}: no run itself, but runs lie in it; name one of them: {', '.join(inside[:MAX_NAMED])}{more}")
    if path.suffix.lower() in OTHER_FILES and path.is_file():
        return StoreError(f"{path}: a file; expected the folder of a run, such as runs/NAME, which breakeven bench PLAN writes")
    return StoreError(f"{path}: holds no {DATABASE}; expected the folder of a run, such as runs/NAME")
