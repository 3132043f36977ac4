"""Where an engine is installed and which release it is, read from file names alone: nothing of it is imported or run.

An environment `E` holds `E/bin/python`, `E/bin/<command>` and `E/lib/python3.*/site-packages/<name>-<release>.dist-info`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven.errors import UsageError
from breakeven.versions import Version

__all__ = ["Installation", "find_installation", "site_folders"]

_SITES = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """`script` is the engine's own command and `python` the interpreter beside it, each None where there is none.

    `package` and `version` are None where the release could not be read (a wrapper script, an editable checkout).
    """

    python: Path | None
    script: Path | None
    package: str | None = None
    version: Version | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether this is known to be a build for CPUs."""
        local = self.version.text.partition("+")[2] if self.version is not None else ""
        return (self.package or "").endswith("-cpu") or local.startswith("cpu")


def find_installation(
    executable: Path | None, *, command: str, packages: Sequence[str], declared: str | None, who: str
) -> Installation:
    """The engine's installation.

    executable: its command, the Python it is installed in, or the environment's folder; None looks for `command` on the PATH and
        then in the environment that Breakeven runs in.
    packages: names under which the engine is distributed.
    declared: the release as the plan gives it, where it does.
    who: stands in front of messages, e.g. "arm plain".

    Raises:
        UsageError: nothing there, or another release than declared.
    """
    found = _located(executable, command, packages, who)
    release = _release(found, packages)
    version = _parsed(declared, who) if declared is not None else None
    package = None
    if release is not None:
        package, text = release
        installed = Version.parse(text)
        if version is not None and version != installed:
            raise UsageError(
                f"{who}: engine_version is {version}, but {found.script or found.python} belongs to {package} {installed}; "
                "name the right executable or leave engine_version out"
            )
        version = installed
    return Installation(python=found.python, script=found.script, package=package, version=version)


def _located(executable: Path | None, command: str, packages: Sequence[str], who: str) -> Installation:
    if executable is None:
        on_path = shutil.which(command)
        if on_path is not None:
            return _beside(Path(on_path), command)
        own = _beside(Path(sys.executable), command)
        if _release(own, packages) is not None:
            return own
        raise UsageError(
            f"{who}: no {command} on the PATH; install {packages[0]}, or name its environment with `executable:` "
            "(the folder, its Python, or the command)"
        )
    if executable.is_dir():
        executable = executable / "bin" / "python"
    if not executable.is_file():
        raise UsageError(f"{who}: executable {executable}: nothing there; expected the engine's command or an environment's Python")
    if not os.access(executable, os.X_OK):
        raise UsageError(f"{who}: executable {executable} may not be run; expected the engine's command or an environment's Python")
    return _beside(executable, command)


def _beside(executable: Path, command: str) -> Installation:
    if executable.name.startswith("python"):
        script = executable.with_name(command)
        return Installation(python=executable, script=script if script.is_file() else None)
    # a command linked from elsewhere (uv, pipx) has its interpreter beside the file that the link names
    beside = (place.with_name("python") for place in (executable, executable.resolve()))
    return Installation(python=next((python for python in beside if python.exists()), None), script=executable)


def _release(found: Installation, packages: Sequence[str]) -> tuple[str, str] | None:
    for site in site_folders(found):
        for package in packages:
            for info in sorted(site.glob(f"{package.replace('-', '_')}-*.dist-info")):
                text = info.name.removesuffix(".dist-info").rpartition("-")[2]
                try:
                    Version.parse(text)
                except ValueError:
                    continue
                return package, text
    return None


def site_folders(found: Installation) -> Iterator[Path]:
    """Where its packages lie."""
    # a virtual environment's Python is a link to one outside, whose packages it does not see; a command's link leads into its own
    places = (found.python, found.script, found.script.resolve() if found.script is not None else None)
    for program in dict.fromkeys(place for place in places if place is not None):
        for pattern in _SITES:
            yield from sorted(program.parent.parent.glob(pattern))


def _parsed(text: str, who: str) -> Version:
    try:
        return Version.parse(text)
    except ValueError as error:
        raise UsageError(f"{who}: engine_version {error}") from error
