from __future__ import annotations

import importlib.util

import pytest

from breakeven.costs.kernels import library
from breakeven.costs.kernels.library import SUPPORTED, open_library
from breakeven.errors import UsageError


def test_without_the_package_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"which is not installed: pip install 'breakeven\[predict\]'.*--from-table"):
        open_library("h100_sxm", "sglang")


def test_the_pinned_release_is_the_one_that_was_read() -> None:
    metadata = pytest.importorskip("importlib.metadata")
    pytest.importorskip("aiconfigurator_core")
    assert metadata.version(library.PACKAGE) == SUPPORTED


def test_systems_are_listed_where_one_is_unknown() -> None:
    pytest.importorskip("aiconfigurator_core")
    with pytest.raises(UsageError, match=r"there are tables for .*h100_sxm"):
        open_library("abacus", "sglang")
    with pytest.raises(UsageError, match="sglang and vllm"):
        open_library("h100_sxm", "other")
    with pytest.raises(UsageError, match="no kernel tables of it for b60; there are some of vllm"):
        open_library("b60", "sglang")
