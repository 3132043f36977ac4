"""docs/serve.md: its example is what the code says of that run, its commands exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from typer.main import get_command

from breakeven.cli import app
from breakeven.deploy.choice import choose
from breakeven.deploy.reproduction import reproduction
from breakeven.engines.base import Arm
from breakeven.experiment.record import RunRecord
from breakeven.experiment.summary import RunSummary
from breakeven.experiment.trial import Trial

PAGE = (Path(__file__).parents[3] / "docs" / "serve.md").read_text(encoding="utf-8")


def test_the_example_is_what_is_said(
    make_record: Callable[..., RunRecord], make_trial: Callable[..., Trial], plain: Arm, eagle: Arm
) -> None:
    record = make_record(plain, eagle, launches=4)
    choice = choose(record)
    told = reproduction(RunSummary(record), make_trial(choice.arm, choice.load, 9, seed=1))
    example = re.search(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert example is not None
    assert example[1] == f"Serving {choice.why}.\n{told.text}.\n"


def test_every_flag_is_on_the_page() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    flags = {
        flag for name in ("serve", "stop") for option in commands[name].params for flag in option.opts if flag.startswith("--")
    }
    assert flags - {"--help"} == {flag for flag in re.findall(r"--[a-z-]+", PAGE) if not flag.startswith("---")}
