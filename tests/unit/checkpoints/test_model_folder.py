"""A model's folder is there with all its files or not at all, and never in place of another."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from breakeven.checkpoints.model_folder import model_folder
from breakeven.errors import CheckpointError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def full_disk() -> Iterator[None]:
    """The system's own limit on a file's size: writing beyond it fails as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_stands_there_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("out", "link"):
        with pytest.raises(CheckpointError, match="is there already"), model_folder(tmp_path / name):
            pass
    assert names(tmp_path) == ["link", "out"]


def test_of_two_that_write_one_model_folder_the_first_to_end_wins(tmp_path: Path) -> None:
    slow = model_folder(tmp_path / "out")
    (slow.__enter__() / "slow").write_text("")
    with model_folder(tmp_path / "out") as fast:
        (fast / "fast").write_text("")
    with pytest.raises(CheckpointError, match="somebody else has written it in the meantime"):
        slow.__exit__(None, None, None)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["fast"]


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_under_tensors_and_under_text(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"out: cannot be written \(.*; free some disk"), model_folder(out) as building:
        save_file({"a": np.zeros(10_000, dtype=np.float32)}, building / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"out: cannot be written \(File too large\)"), model_folder(out) as building:
        (building / "config.json").write_text("x" * 2000)
    assert names(tmp_path) == []


def test_whoever_may_read_the_folder_may_read_its_tensors(tmp_path: Path) -> None:
    with model_folder(tmp_path / "out") as building:
        save_file({"a": np.zeros(1, dtype=np.float32)}, building / "model.safetensors")
        # as newer releases of safetensors leave what they write
        (building / "model.safetensors").chmod(0o600)
        (building / "config.json").write_text("{}")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]
