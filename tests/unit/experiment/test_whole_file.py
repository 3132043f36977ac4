from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from breakeven.experiment.whole_file import write_whole


def test_new_over_old_and_through_a_link(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_whole(file, "first")
    write_whole(file, "second caf\u00e9")
    (tmp_path / "link").symlink_to(file)
    write_whole(tmp_path / "link", "third")
    assert file.read_text(encoding="utf-8") == "third"
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"link", "report.html"}


def test_a_failure_in_the_middle_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.html"
    write_whole(file, "first")

    def full(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text.encode(encoding)[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "second")
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]


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
