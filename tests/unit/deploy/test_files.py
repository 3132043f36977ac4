"""Manifests are written whole or not at all, and all or none: half of them would stand in the way of the next try."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from breakeven.deploy import files
from breakeven.deploy.files import write_new
from breakeven.errors import UsageError


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    wanted = [(tmp_path / "first.yaml", "x"), (tmp_path / "a.yaml", "x" * 2000), (tmp_path / "last.yaml", "x")]
    try:
        with pytest.raises(UsageError, match=r"a.yaml: cannot be written \(File too large\)"):
            write_new(wanted)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    assert [path.read_text() for path in write_new(wanted)] == ["x", "x" * 2000, "x"]


@pytest.mark.parametrize("place", [0, 1])
def test_one_that_exists_keeps_the_other_from_being_written(tmp_path: Path, place: int) -> None:
    wanted = [(tmp_path / "compose.yaml", "new"), (tmp_path / "kubernetes.yaml", "new")]
    there = wanted[place][0]
    there.write_text("old")
    with pytest.raises(UsageError, match=f"{there.name}: exists, and may hold changes of yours"):
        write_new(wanted)
    assert list(tmp_path.iterdir()) == [there]
    assert there.read_text() == "old"


@pytest.mark.parametrize("place", [0, 1])
def test_a_folder_that_is_not_there_keeps_the_other_from_being_written(tmp_path: Path, place: int) -> None:
    wanted = [(tmp_path / "a.yaml", "new"), (tmp_path / "b.yaml", "new")]
    wanted[place] = tmp_path / "gone" / "c.yaml", "new"
    with pytest.raises(UsageError, match=r"c.yaml: cannot be written \(No such file or directory\)"):
        write_new(wanted)
    assert list(tmp_path.iterdir()) == []


def test_one_that_appears_meanwhile_takes_the_others_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    write = files._write

    def slow(wanted: list[tuple[Path, str]], named: list[Path]) -> None:
        write(wanted, named)
        if not wanted:
            first.write_text("somebody else's")

    monkeypatch.setattr(files, "_write", slow)
    with pytest.raises(UsageError, match=r"a.yaml: exists"):
        write_new([(first, "new"), (second, "new")])
    assert list(tmp_path.iterdir()) == [first]
    assert first.read_text() == "somebody else's"


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for other in (tmp_path / "a.yaml", tmp_path / "link" / "a.yaml"):
        with pytest.raises(UsageError, match="a name of its own"):
            write_new([(tmp_path / "a.yaml", "compose"), (other, "kubernetes")])
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "there.yaml").write_text("old")
    with pytest.raises(UsageError, match="exists"):
        write_new([(pipe, "of the refused"), (tmp_path / "there.yaml", "new")])
    write_new([(pipe, "text")])
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.exists()
