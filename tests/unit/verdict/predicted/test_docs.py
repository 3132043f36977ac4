"""docs/predict.md: its examples print what the page shows, its tables are what the code has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.costs.kernels.library import open_library
from breakeven.costs.prediction_error import KINDS
from breakeven.costs.prior.architecture import target_shape
from breakeven.costs.prior.drafter import default_drafter
from breakeven.costs.prior.kernel_surface import KernelSurface
from breakeven.costs.prior.parts import Kernels

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "predict.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```\nbreakeven (predict .*?)\n```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_there_is_an_example_of_every_way() -> None:
    assert {"--target", "--from-table", "--step-times"} <= {command.split()[1] for command, _ in EXAMPLES}


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command.split()[1] for command, _ in EXAMPLES])
def test_examples_print_what_is_shown(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--target" in command:
        pytest.importorskip("aiconfigurator_core")
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert " ".join(shown.split()) in " ".join(done.output.split())


def test_every_flag_is_on_the_page() -> None:
    options = get_command(app).commands["predict"].params  # type: ignore[attr-defined]
    flags = {flag for option in options for flag in option.opts if flag.startswith("--")}
    assert flags - {"--help"} <= set(re.findall(r"--[a-z][a-z-]+", PAGE))


def test_the_error_bars_are_those_that_are_printed() -> None:
    for kind in ("three or more data sets", "another drafter", "another method", "other numbers of drafts", "kernel tables"):
        printed = KINDS[kind]
        assert f"{printed.half * 100:.0f} %, {printed.tenth * 100:.0f} %" in PAGE


def test_the_worked_example_is_what_the_tables_give() -> None:
    pytest.importorskip("aiconfigurator_core")
    target = target_shape(ROOT / "examples" / "kimi-k2.5-blackwell" / "target")
    kernels = Kernels(open_library("rtx_pro_6000_server", "sglang"))
    surface = KernelSurface(kernels=kernels, target=target, drafter=default_drafter(target), parallel=8, context=1024)
    rows = re.findall(r"^\| (\d+) \| (\d+)(?: tok/s)? \| ([\d.]+) \| (\d+) / (\d+) / (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for batch, plain, cost, *speeds in rows:
        parts = surface.breakdown(int(batch), 3)
        assert int(plain) == pytest.approx(int(batch) / parts.plain_s, rel=0.01)
        assert float(cost) == pytest.approx(parts.cost.value, abs=0.005)
        for length, speed in zip((1.0, 1.68, 2.88), speeds, strict=True):
            assert int(speed) == pytest.approx(int(batch) * length / parts.round_s, rel=0.01)
