"""Output that nobody reads, in real processes with real pipes: never the exit code of a fault that was found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TABLE = "arm,method,concurrency,throughput_tok_s\nplain,none,1,100\na,eagle3,1,120\n"
FAULTY = "sglang serve m --speculative-algorithm EAGLE --speculative-draft-model-path x/eagle3-head"


@contextmanager
def unread_pipe() -> Iterator[int]:
    """The writing end of a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def start(folder: Path, *arguments: str, stdout: int, stderr: int) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "breakeven", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=stdout, stderr=stderr, check=False, timeout=60, text=True)
    return done.returncode, done.stdout or "", done.stderr or ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "usual"),
    [
        (("--help",), 0),  # click's own writing
        (("verdict", "t.csv"), 0),  # Rich's
        (("verdict", "t.csv", "--json"), 0),
        (("doctor", "--launch", FAULTY), 1),
    ],
)
def test_a_reader_that_went_away(arguments: tuple[str, ...], usual: int, folder: Path) -> None:
    assert start(folder, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)[0] == usual
    with unread_pipe() as pipe:
        assert start(folder, *arguments, stdout=pipe, stderr=subprocess.PIPE) == (0, "", "")


def test_a_reader_of_messages_that_went_away_changes_no_exit_code(folder: Path) -> None:
    with unread_pipe() as pipe:
        assert start(folder, "verdict", "nowhere.csv", stdout=subprocess.PIPE, stderr=pipe)[0] == 2
        code, shown, _ = start(folder, "verdict", "t.csv", stdout=subprocess.PIPE, stderr=pipe)
    assert code == 0
    assert shown


@pytest.mark.parametrize(("name", "code"), [("t.csv", 0), ("nowhere.csv", 2)])
def test_streams_that_were_closed_at_the_start(name: str, code: int, folder: Path) -> None:
    program = f"exec {sys.executable} -m breakeven verdict {name} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", program], cwd=folder, check=False, timeout=60).returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_under_output_is_an_error_and_under_messages_is_not(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        code, _, shown = start(folder, "verdict", "t.csv", stdout=full.fileno(), stderr=subprocess.PIPE)
        assert (code, "No space left" in shown) == (2, True)
        assert start(folder, "verdict", "nowhere.csv", stdout=subprocess.PIPE, stderr=full.fileno())[0] == 2
