"""Whose kernels an installation computes with, from file names alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.engines.base import Arm
from breakeven.engines.registry import get_engine
from breakeven.engines.resolved import resolved_findings

SGLANG = get_engine("sglang")
Install = Callable[..., Arm]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """An environment with SGLang and the named things beside it, as the arm that it serves."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def make(*beside: str, outside: bool = False, **env: str) -> Arm:
        folder = tmp_path / "env"
        python, site = folder / "bin/python", folder / "lib/python3.12/site-packages"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch(mode=0o755)
        for name in ("sglang-0.5.23.dist-info", *beside):
            (site / name).mkdir(parents=True, exist_ok=True)
        settings = f"home = /usr/bin\ninclude-system-site-packages = {str(outside).lower()}\n"
        (folder / "pyvenv.cfg").write_text(settings)
        return Arm(name="a", engine="sglang", target=tmp_path, executable=folder, env=env)

    return make


@pytest.mark.parametrize(
    ("beside", "release"),
    [
        (("sgl_kernel", "sgl_kernel-0.3.9.post2.dist-info"), "sgl-kernel 0.3.9.post2"),
        (("sgl_kernel", "sglang_kernel-0.4.10.dist-info"), "sglang-kernel 0.4.10"),
        (("sgl_kernel", "sglang_kernel_cpu-0.4.10+cpu.dist-info"), "sglang-kernel-cpu 0.4.10+cpu"),
    ],
)
def test_a_release_is_named(install: Install, beside: tuple[str, ...], release: str) -> None:
    facts = SGLANG.facts(install(*beside), (), "")
    assert facts["kernels"] == release
    assert "unreleased_kernels" not in facts


def test_a_module_of_no_release_is_a_warning(install: Install) -> None:
    arm = install("sgl_kernel")
    facts = SGLANG.facts(arm, (), "")
    assert "kernels" not in facts
    (finding,) = resolved_findings(arm, facts)
    assert (finding.code, finding.severity) == ("unreleased-kernels", "warning")
    assert "site-packages and belongs to no installed distribution" in finding.evidence[0]
    assert "nothing of what sglang is worth" in finding.remedy


def test_what_is_on_the_path_comes_before_what_is_installed(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    (own / "sgl_kernel").mkdir(parents=True)
    released = ("sgl_kernel", "sglang_kernel-0.4.10.dist-info")
    told = SGLANG.facts(install(*released, PYTHONPATH=f"{tmp_path / 'nothing'}:{own}"), (), "")["unreleased_kernels"]
    assert told == f"sgl_kernel is imported from {own} and belongs to no installed distribution"
    monkeypatch.setenv("PYTHONPATH", str(own))
    assert SGLANG.facts(install(*released), (), "")["unreleased_kernels"] == told
    assert SGLANG.facts(install(*released, PYTHONPATH=""), (), "")["kernels"] == "sglang-kernel 0.4.10"
    (own / "sglang_kernel-9.9.dist-info").mkdir()
    assert SGLANG.facts(install(*released), (), "")["kernels"] == "sglang-kernel 9.9"


def test_none_at_all(install: Install) -> None:
    assert "no sgl-kernel or sglang-kernel is installed" in str(SGLANG.facts(install(), (), "")["unreleased_kernels"])


def test_where_files_do_not_tell_nothing_is_said(install: Install, tmp_path: Path) -> None:
    for arm in (
        install(outside=True),
        Arm(name="a", engine="sglang", url="http://h:1"),
        Arm(name="a", engine="sglang", command=("docker", "run", "{port}")),
        Arm(name="a", engine="sglang", executable=tmp_path / "nowhere"),
    ):
        assert not {"kernels", "unreleased_kernels"} & set(SGLANG.facts(arm, (), ""))
