"""Whose compiled kernels an SGLang server computes with, from the names of files.

SGLang's package holds no kernels: `sgl_kernel` comes from a distribution of its own (sgl-kernel, from 0.5.10 sglang-kernel, and
builds for other hardware). Anything else that can be imported under that name, in plain torch for instance, makes SGLang start
too; its speeds, and to a degree its accept lengths, are then not SGLang's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from breakeven.engines.base import Arm
from breakeven.engines.installation import Installation, site_folders

__all__ = ["Kernels", "find_kernels"]

MODULE = "sgl_kernel"
_RELEASES = ("sgl_kernel*-*.dist-info", "sglang_kernel*-*.dist-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """`release` is the distribution with its version, None where the module belongs to none that could be found."""

    release: str | None
    place: Path | None


def find_kernels(arm: Arm, installation: Installation) -> Kernels | None:
    """None where file names do not tell: SGLang itself was not found among them, or packages outside are seen as well."""
    inherited = os.environ.get("PYTHONPATH", "")
    for folder in arm.env.get("PYTHONPATH", inherited).split(os.pathsep):
        if folder and _holds_module(Path(folder)):  # comes before whatever is installed
            return Kernels(release=_release([Path(folder)]), place=Path(folder))
    if installation.package is None or _sees_packages_outside(installation):
        return None
    sites = list(site_folders(installation))
    return Kernels(release=_release(sites), place=next((site for site in sites if _holds_module(site)), None))


def _holds_module(folder: Path) -> bool:
    return (folder / MODULE).is_dir() or (folder / f"{MODULE}.py").is_file()


def _release(folders: Iterable[Path]) -> str | None:
    for folder in folders:
        for pattern in _RELEASES:
            for info in sorted(folder.glob(pattern)):
                name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
                return f"{name.replace('_', '-')} {version}"
    return None


def _sees_packages_outside(installation: Installation) -> bool:
    if installation.python is None:
        return True
    try:
        settings = (installation.python.parent.parent / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(line.replace(" ", "").lower() == "include-system-site-packages=true" for line in settings.splitlines())
