"""Manifests are written whole or not at all: half of one would stand in the way of the next try."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from breakeven.deploy.files import write_new
from breakeven.errors import UsageError


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(UsageError, match=r"a.yaml: cannot be written \(File too large\)"):
            write_new(tmp_path / "a.yaml", "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    assert write_new(tmp_path / "a.yaml", "x" * 2000).read_text() == "x" * 2000
