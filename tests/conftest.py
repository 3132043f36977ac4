"""Tests that need a GPU say why they were skipped where there is none.

There, what compilers warn of depends on GPU and release, and is shown instead of failing the test.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu") is not None]
    skipped = bool(marked) and not has_gpu()
    for item in marked:
        item.add_marker(pytest.mark.filterwarnings("default"))
        if skipped:
            item.add_marker(pytest.mark.skip(reason="needs a GPU that torch can use"))


def has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch  # noqa: TID251 - only where a test is collected that is about it

    return torch.cuda.is_available()
