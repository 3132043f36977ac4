from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.drafter.training.metrics import FILE, Metrics
from breakeven.errors import StoreError


@pytest.fixture
def full_disk() -> Iterator[None]:
    """The system's own limit on a file's size: writing beyond it fails as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lines_after_the_checkpoint_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    metrics = Metrics(tmp_path, after_step=2)
    metrics.write(3, loss=1.0)
    metrics.close()
    assert [json.loads(line)["step"] for line in (tmp_path / FILE).read_text().splitlines()] == [1, 2, 3]


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, after_step=0)
    metrics.write(1, loss=1.0)
    with pytest.raises(StoreError, match=r"metrics.jsonl: cannot be written \(File too large\); make room, then start again"):
        metrics.write(2, losses=[1.0] * 50)
    metrics.close()
