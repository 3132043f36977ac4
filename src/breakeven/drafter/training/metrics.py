"""What a training tells as it goes: lines of metrics.jsonl, TensorBoard where it is installed.

A line that was written after the checkpoint that a run goes on from will be written again, so it is removed first: the file of a
run that was killed is that of a run that was not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["Metrics"]

FILE = "metrics.jsonl"


class Metrics:
    def __init__(self, folder: Path, *, after_step: int) -> None:
        """`after_step`: the step that training goes on from; what was told of later ones is forgotten."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        if path.exists():
            kept = [line for line in path.read_bytes().splitlines(keepends=True) if _step(line) <= after_step]
            beside = path.with_suffix(".writing")
            beside.write_bytes(b"".join(kept))
            beside.replace(path)
        self._file = path.open("a", encoding="utf-8")
        self._board = _board(folder)

    def write(self, step: int, **values: Any) -> None:
        """One line. Lists are by step of the training-time test."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                for index, part in enumerate(value if isinstance(value, (list, tuple)) else [value]):
                    if isinstance(part, (int, float)):
                        tag = f"{name}/{index}" if isinstance(value, (list, tuple)) else name
                        self._board.add_scalar(tag, part, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


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
