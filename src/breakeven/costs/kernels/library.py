"""Where the kernel tables lie, for which systems and engines, and the hardware figures that go with them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from breakeven.errors import UsageError
from breakeven.versions import Version

__all__ = ["PACKAGE", "SUPPORTED", "Hardware", "Library", "Rows", "open_library"]

PACKAGE = "aiconfigurator-core"
# the release whose file names and columns were read; others are used with a doubt
SUPPORTED = "0.12.0"
ENGINES = ("sglang", "vllm")
INSTALL = f"pip install 'breakeven[predict]' (or: pip install {PACKAGE}=={SUPPORTED})"

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One GPU of a system: bytes/s of memory, the share of that long reads reach, its bytes if known, and GPUs in a node."""

    memory_bytes_s: float
    reached: float
    num_gpus: int
    memory_bytes: float | None = None

    @property
    def read_bytes_s(self) -> float:
        return self.memory_bytes_s * self.reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The tables of one system for one engine. `release` is the package's, `engine_release` the one its kernels were timed in."""

    root: Path
    system: str
    engine: str
    release: str
    engine_release: str
    hardware: Hardware

    def rows(self, family: str, table: str, columns: Sequence[str], **equal: object) -> tuple[Rows, str] | None:
        """The rows of `systems/data/SYSTEM/family/ENGINE/RELEASE/table.parquet` where every column in `equal` has that value.

        This engine's own tables come first, its newest release up to `engine_release` before older ones; then those of the other
        engines. Returns the rows with what they are of ("sglang 0.5.14"), or None where no table has such rows.
        """
        for engine in (self.engine, *(other for other in ENGINES if other != self.engine)):
            newest = self.engine_release if engine == self.engine else None
            for release in _releases(self.root / "data" / self.system / family / engine, newest):
                file = self.root / "data" / self.system / family / engine / release / f"{table}.parquet"
                found = _read(file, tuple(columns), tuple(sorted(equal.items()))) if file.is_file() else ()
                if found:
                    return found, f"{engine} {release}"
        return None


def open_library(system: str, engine: str) -> Library:
    """The tables for a system (such as "rtx_pro_6000_server") and an engine ("sglang" or "vllm").

    Raises:
        UsageError: the package is not installed, or has no such system or engine; the message lists what there is.
    """
    root = _package_root() / "systems"
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine}: kernel tables are for {' and '.join(ENGINES)}")
    systems = sorted(path.stem for path in root.glob("*.yaml") if (root / "data" / path.stem / "gemm").is_dir())
    if system not in systems:
        raise UsageError(f"--system {system}: no kernel tables; there are tables for {', '.join(systems)}")
    releases = _releases(root / "data" / system / "gemm" / engine, None)
    if not releases:
        others = [name for name in ENGINES if _releases(root / "data" / system / "gemm" / name, None)]
        raise UsageError(f"--engine {engine}: no kernel tables of it for {system}; there are some of {', '.join(others)}")
    return Library(
        root=root,
        system=system,
        engine=engine,
        release=importlib.metadata.version(PACKAGE),
        engine_release=releases[0],
        hardware=_hardware(root / f"{system}.yaml"),
    )


def _package_root() -> Path:
    # found, not imported: its compiled part is not needed
    try:
        found = importlib.util.find_spec("aiconfigurator_core")
        importlib.metadata.version(PACKAGE)
        has_parquet = importlib.util.find_spec("pyarrow") is not None
    except (ImportError, ValueError):
        found, has_parquet = None, False
    if found is None or not found.submodule_search_locations or not has_parquet:
        raise UsageError(
            f"predicting from kernel tables needs {PACKAGE}, which is not installed: {INSTALL}. "
            "Without it, a table of measured speedups (--from-table) or step times (--step-times) can be predicted from"
        )
    return Path(next(iter(found.submodule_search_locations)))


def _hardware(file: Path) -> Hardware:
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    gpu, node = described["gpu"], described["node"]
    return Hardware(
        memory_bytes_s=float(gpu["mem_bw"]),
        reached=float(gpu.get("mem_bw_empirical_scaling_factor", 0.8)),
        num_gpus=int(node["num_gpus_per_node"]),
        memory_bytes=float(gpu["mem_capacity"]) if "mem_capacity" in gpu else None,
    )


@lru_cache(maxsize=64)
def _releases(folder: Path, newest: str | None) -> tuple[str, ...]:
    """Releases with data in `folder`, newest first, none above `newest`."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            found.append((Version.parse(path.name), path.name))
        except ValueError:
            continue
    limit = Version.parse(newest) if newest is not None else None
    return tuple(name for version, name in sorted(found, reverse=True) if limit is None or version <= limit)


@lru_cache(maxsize=256)
def _read(file: Path, columns: tuple[str, ...], equal: tuple[tuple[str, object], ...]) -> Rows:
    import pyarrow.parquet as parquet

    present = set(parquet.read_schema(file).names)
    if not set(columns) <= present or not {name for name, _ in equal} <= present:
        return ()
    filters = [(name, "=", value) for name, value in equal] or None
    table = parquet.read_table(file, columns=list(columns), filters=filters)
    return tuple(table.to_pylist())
