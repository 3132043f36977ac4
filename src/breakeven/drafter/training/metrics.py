"""What a training tells as it goes: lines of metrics.jsonl, TensorBoard where it is installed.

A line that was written after the checkpoint that a run goes on from will be written again, so it is removed first: the file of a
run that was killed is that of a run that was not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from breakeven.errors import StoreError
from breakeven.whole import whole_file

__all__ = ["Metrics"]

FILE = "metrics.jsonl"


class Metrics:
    def __init__(self, folder: Path, *, after_step: int) -> None:
        """`after_step`: the step that training goes on from; what was told of later ones is forgotten.

        Raises:
            StoreError: it cannot be written.
        """
        self._path = folder / FILE
        with _disk_errors(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                kept = [line for line in self._path.read_bytes().splitlines(keepends=True) if _step(line) <= after_step]
                with whole_file(self._path, replaces=True) as opened:
                    opened.write(b"".join(kept))
            self._file = self._path.open("a", encoding="utf-8")
        self._board = _board(folder)

    def write(self, step: int, **values: Any) -> None:
        """One line. Lists are by step of the training-time test.

        Raises:
            StoreError: it cannot be written.
        """
        with _disk_errors(self._path):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                for index, part in enumerate(value if isinstance(value, (list, tuple)) else [value]):
                    if isinstance(part, (int, float)):
                        tag = f"{name}/{index}" if isinstance(value, (list, tuple)) else name
                        self._board.add_scalar(tag, part, step)

    def close(self) -> None:
        # on a full disk closing fails as writing did, and that was said
        with suppress(OSError):
            self._file.close()
        if self._board is not None:
            self._board.close()


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written ({error.strerror}); make room, then start again: training goes on from the last checkpoint"
        ) from error


def _step(line: bytes) -> float:
    try:
        step = json.loads(line)["step"]
        return step if isinstance(step, int) else float("inf")
    except (ValueError, LookupError, TypeError):
        return float("inf")  # cut off by a kill


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))
