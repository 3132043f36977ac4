"""Rows of serving facts that differ by release."""

from __future__ import annotations

import pytest

from breakeven.engines.launch_flags import choose_flag
from breakeven.engines.version_facts import forced_acceptance
from breakeven.versions import Version


@pytest.mark.parametrize(
    ("version", "variable", "method"),
    [
        ("0.4.6.post5", "SIMULATE_ACC_LEN", "mean is missed"),
        ("0.4.7", "SIMULATE_ACC_LEN", "mean is missed"),
        ("0.4.9", "SIMULATE_ACC_LEN", "SIMULATE_ACC_METHOD=match-expected"),
        ("0.5.2", "SIMULATE_ACC_LEN", "SIMULATE_ACC_METHOD=match-expected"),
        ("0.5.3", "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD=match-expected"),
        ("0.5.10.post1", "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD=match-expected"),
        ("0.5.11", "SGLANG_SIMULATE_ACC_LEN", ""),
        ("0.5.23", "SGLANG_SIMULATE_ACC_LEN", ""),
        (None, "SGLANG_SIMULATE_ACC_LEN", ""),
    ],
)
def test_how_sglang_accepts_to_order(version: str | None, variable: str, method: str) -> None:
    release = None if version is None else Version.parse(version)
    way = forced_acceptance("sglang", release)
    assert way is not None
    assert way.how.startswith(f"{variable} ")
    assert choose_flag("sglang", "forced acceptance", release).name == variable  # what people are told is what launches use
    chosen = choose_flag("sglang", "forced acceptance, method", release).name
    if method.endswith("missed"):
        assert "mean is missed" in way.how
        assert chosen is None
    else:
        assert method in way.how
        assert chosen == f"{variable.removesuffix('LEN')}METHOD"
