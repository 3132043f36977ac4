"""docs/doctor.md: every flag is on the page, and its example is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.doctor.folders import LAYER_IDS, make_target, portable
from tests.unit.doctor.test_signs import sgl_lines
from typer.main import get_command
from typer.testing import CliRunner

from breakeven.cli import app

PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"^```text\n\$ breakeven (?P<command>.*?)\n(?P<output>.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_flag_is_on_the_page() -> None:
    (command,) = [one for name, one in get_command(app).commands.items() if name == "doctor"]  # type: ignore[attr-defined]
    flags = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    ours = re.sub(r"^COMMAND below is `[^`]*`", "", PAGE, flags=re.MULTILINE)
    assert flags - {"--help"} == set(re.findall(r"(?<![\w-])--(?!speculative)[a-z][a-z-]+", ours))


def test_the_example_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXAMPLE is not None
    broken, target = portable(), make_target()
    broken.name = "head"
    del broken.config["eagle_config"]
    broken.config[LAYER_IDS] = [3, 5, 8]
    broken.config["max_position_embeddings"] = 2048
    broken.write(tmp_path)
    target.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(app, EXAMPLE["command"].split())
    assert done.exit_code == 1
    said = "\n".join(line.rstrip() for line in done.output.replace(f"{tmp_path}/", "").splitlines())
    assert said.partition("\nNot checked")[0].strip() == EXAMPLE["output"].strip()


def test_the_example_of_signs_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(r"^COMMAND below is `(?P<command>[^`]*)`", PAGE, re.MULTILINE)
    shown = re.search(
        r"^```console\n\$ breakeven doctor --log server.log --launch 'COMMAND'\n(?P<output>.*?)^```", PAGE, re.M | re.S
    )
    assert command is not None
    assert shown is not None
    (tmp_path / "server.log").write_text(sgl_lines(1.0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(app, ["doctor", "--log", "server.log", "--launch", " ".join(command["command"].split())])
    assert done.exit_code == 1
    said = "\n".join(line.rstrip() for line in done.output.splitlines())
    assert said.partition("\nNot checked")[0].strip() == shown["output"].strip()
