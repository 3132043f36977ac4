"""`breakeven profile`: what it refuses before anything is started, and its place in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.errors import BreakevenError

PAGE = (Path(__file__).parents[3] / "docs" / "engines.md").read_text(encoding="utf-8")
PLAN = """
name: p
target: .
load: [{concurrency: 1}]
arms:
  plain: {engine: local}
  simulated: {engine: fake}
  attached: {engine: vllm, url: 'http://127.0.0.1:9'}
  own: {engine: vllm, command: [serve.sh, '{port}']}
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arm", "none"), "arm 'none': not in the plan; expected one of: 'plain', 'simulated'"),
        (("--arm", "simulated"), "there is nothing to profile"),
        (("--arm", "attached"), "belongs to its users"),
        (("--arm", "own"), "has a command of its own"),
        (("--arm", "plain"), "the embedded engine has no profiler"),
        (("--arm", "plain", "--load", "c=9"), "--load 'c=9': not in the plan; expected one of: c=1"),
    ],
)
def test_what_cannot_be_profiled_is_refused_at_once(plan: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(BreakevenError, match=re.escape(message)) as refused:
        CliRunner().invoke(app, ["profile", str(plan), *arguments], catch_exceptions=False)
    assert refused.value.exit_code == 2
    assert not Path("runs").exists()


def test_of_a_server_that_does_not_start_no_empty_folder_stays(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    engine = tmp_path / "vllm"
    engine.write_text("#!/bin/sh\nexit 1\n")
    engine.chmod(0o755)
    plan.write_text(PLAN + f"  broken: {{engine: vllm, executable: {engine}, engine_version: 0.32.0}}\n")
    with pytest.raises(BreakevenError, match="exited with code 1"):
        CliRunner().invoke(app, ["profile", str(plan), "--arm", "broken"], catch_exceptions=False)
    assert Path("runs/p/logs").is_dir()
    assert not Path("runs/p/profile").exists()


def test_every_flag_is_on_the_page() -> None:
    options = get_command(app).commands["profile"].params  # type: ignore[attr-defined]
    section = PAGE[PAGE.index("## What a server is told") :]
    assert {flag for option in options for flag in option.opts if flag.startswith("--")} == set(re.findall(r"--[a-z-]+\b", section))
