"""Files and folders are there whole or not at all, whoever else writes them and however their writers end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from breakeven import whole
from breakeven.whole import UNFINISHED, whole_file, whole_folder, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_everything_is_on_the_disk_before_the_name_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(whole, "_flush", lambda path: flushed.append(path.name))
    with whole_folder(tmp_path / "deep" / "out", replaces=False) as building:
        (building / "a").write_text("a")
        assert not (tmp_path / "deep" / "out").exists()
        assert [building] == list((tmp_path / "deep").glob(UNFINISHED))
    assert flushed == ["a", building.name, "deep"]
    assert names(tmp_path / "deep") == ["out"]


def test_what_stood_there_is_replaced_at_the_end_and_only_if_asked(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "file"
    for text in ("first", "second"):
        with whole_folder(out, replaces=True) as building:
            (building / text).write_text(text)
        write_whole(file, text)
    with pytest.raises(KeyboardInterrupt), whole_folder(out, replaces=True):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), whole_file(file, replaces=True):
        raise KeyboardInterrupt
    with pytest.raises(OSError, match="not empty"), whole_folder(out, replaces=False):
        pass
    with pytest.raises(FileExistsError), whole_file(file, replaces=False):
        pass
    assert names(tmp_path) == ["file", "out"]
    assert names(out) == ["second"]
    assert file.read_text() == "second"


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_somebody_took_in_the_meantime_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", unsupported)
    file = tmp_path / "file"
    with pytest.raises(FileExistsError), whole_file(file, replaces=False):
        write_whole(file, "early")
    assert file.read_text() == "early"
    with whole_file(tmp_path / "new", replaces=False) as opened:
        opened.write(b"alone")
    assert (tmp_path / "new").read_text() == "alone"
    assert names(tmp_path) == ["file", "new"]


def test_a_file_through_a_link_and_to_the_end_of_a_loop_of_links(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "first")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "caf\u00e9")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "caf\u00e9"
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    write_whole(tmp_path / "loop", "a file now")
    assert names(tmp_path) == ["file", "link", "loop"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "through")
    reader.join(5)
    assert received == ["through"]
    assert pipe.is_fifo()


def test_a_full_disk_says_where(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path / 'file'}'"):
            write_whole(tmp_path / "file", "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with whole_file(file, replaces=True) as slow:
        slow.write(b"slow, ")
        with whole_file(file, replaces=True) as fast:
            fast.write(b"fast")
        assert file.read_text() == "fast"
        slow.write(b"and whole")
    assert file.read_text() == "slow, and whole"
    assert names(tmp_path) == ["file"]


KILLED = """
import os, sys
from pathlib import Path
from breakeven.whole import whole_file, whole_folder
path = Path(sys.argv[1])
with (whole_folder if path.name == "folder" else whole_file)(path, replaces=True) as begun:
    (begun / "half").write_text("") if path.name == "folder" else begun.write(b"half")
    os.kill(os.getpid(), 9)
"""


def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    for name in ("file", "folder"):
        assert subprocess.run([sys.executable, "-c", KILLED, tmp_path / name], check=False).returncode == -9
    assert [name.split("-")[0] for name in names(tmp_path)] == [".file", ".folder"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("")
    (tmp_path / ".file-linkname.writing").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / ".file-pipename.writing")
    (tmp_path / ".file-of-mine.writing").write_text("")
    (tmp_path / ".files-0a1b2c3d.writing").write_text("")
    with whole_folder(tmp_path / "other", replaces=False):
        assert len(names(tmp_path)) == 8
        write_whole(tmp_path / "file", "whole")
        with whole_folder(tmp_path / "folder", replaces=True):
            pass
    left = [".file-linkname.writing", ".file-of-mine.writing", ".files-0a1b2c3d.writing", "elsewhere", "file", "folder", "other"]
    assert names(tmp_path) == left
    assert names(tmp_path / "elsewhere") == ["kept"]


def test_without_locks_nothing_is_taken_for_left_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    (tmp_path / ".file-0a1b2c3d.writing").write_text("another machine's")
    monkeypatch.setattr(whole.fcntl, "flock", unsupported)
    write_whole(tmp_path / "file", "whole")
    assert names(tmp_path) == [".file-0a1b2c3d.writing", "file"]


def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with whole_folder(out, replaces=True) as building:
        (building / "a").write_text("old")
    real = Path.rename

    def fails(path: Path, target: Path) -> Path:
        if target == out and (path / "a").read_text() == "new":
            raise OSError(5, "Input/output error")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="Input/output error"), whole_folder(out, replaces=True) as building:
        (building / "a").write_text("new")
    assert (out / "a").read_text() == "old"
    assert names(tmp_path) == ["out"]
