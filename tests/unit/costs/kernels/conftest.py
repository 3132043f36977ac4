"""A library of made-up kernels in the layout of the real one: times are simple functions, so that what is read off is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from breakeven.costs.kernels.library import Hardware, Library


@pytest.fixture
def write_table(tmp_path: Path) -> Callable[..., None]:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")

    def write(family: str, engine: str, release: str, table: str, rows: Sequence[dict[str, Any]]) -> None:
        folder = tmp_path / "data" / "box" / family / engine / release
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), folder / f"{table}.parquet")

    return write


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(
        root=tmp_path,
        system="box",
        engine="sglang",
        release="0.12.0",
        engine_release="0.5.14",
        hardware=Hardware(memory_bytes_s=1e12, reached=0.8, num_gpus=8),
    )
