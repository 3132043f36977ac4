"""A folder is there with all its files or not at all."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from breakeven.checkpoints import whole_folder as module
from breakeven.checkpoints.whole_folder import UNFINISHED, model_folder, whole_folder
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


def test_everything_is_on_the_disk_before_the_name_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(module, "_flush", lambda path: flushed.append(path.name))
    with whole_folder(tmp_path / "deep" / "out", replaces=False) as building:
        (building / "a").write_text("a")
        assert not (tmp_path / "deep" / "out").exists()
        assert [building] == list((tmp_path / "deep").glob(UNFINISHED))
    assert flushed == ["a", building.name, "deep"]
    assert names(tmp_path / "deep") == ["out"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o777 == 0o755


def test_what_stood_there_is_replaced_at_the_end_and_only_if_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for text in ("first", "second"):
        with whole_folder(out, replaces=True) as building:
            (building / text).write_text(text)
    assert names(out) == ["second"]
    with pytest.raises(KeyboardInterrupt), whole_folder(out, replaces=True):
        raise KeyboardInterrupt
    with pytest.raises(OSError, match="not empty"), whole_folder(out, replaces=False):
        pass
    with pytest.raises(CheckpointError, match="is there already"), model_folder(out):
        pass
    assert names(tmp_path) == ["out"]
    assert names(out) == ["second"]


def test_of_two_that_write_one_model_folder_the_first_to_end_wins(tmp_path: Path) -> None:
    slow = model_folder(tmp_path / "out")
    (slow.__enter__() / "slow").write_text("")
    with model_folder(tmp_path / "out") as fast:
        (fast / "fast").write_text("")
    with pytest.raises(CheckpointError, match="not empty"):
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
