"""`breakeven predict` as a user calls it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.errors import UsageError
from breakeven.verdict.predicted.result import Prediction

ROOT = Path(__file__).parents[3]
STEPS = str(ROOT / "examples" / "predict" / "step-times.yaml")
KIMI = ["--target", str(ROOT / "examples" / "kimi-k2.5-blackwell" / "target"), "--system", "rtx_pro_6000_server", "--tp", "8"]


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["predict", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_json_is_the_result() -> None:
    result = Prediction.model_validate(json.loads(call("--step-times", STEPS, "--accept", "3:2.5", "--json")))
    assert result.kind == "step times"


def test_the_worked_example_says_why_and_how_sure_in_five_seconds() -> None:
    pytest.importorskip("aiconfigurator_core")
    began = time.process_time()
    text = " ".join(call(*KIMI, "--accept", "0.83,0.60,0.45", "--measured-plain", "B=1:63.6 tok/s").split())
    assert time.process_time() - began < 5.0
    assert "Error bar: such predictions (from kernel tables without hardware)" in text
    assert "Of what a round adds at B=8: experts" in text
    assert "Forced acceptance" in text


def test_what_a_weak_drafter_must_reach_is_said_by_position() -> None:
    text = " ".join(call("--step-times", STEPS, "--accept", "0.40,0.15,0.05", "--batch", "32", "--num-draft-tokens", "3").split())
    assert "B=32: surely pays at accept length" in text
    assert "position" in text.lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-run", "x", "--accept", "3:2.5", "--schedule-for", "tgi"], "--schedule-for 'tgi': expected vllm or sglang"),
        (["--from-run", "x", "--schedule-for", "vllm"], "needs --accept"),
        (["--from-run", "x", "--accept", "3:2.5", "--engine-version", "0.30.0"], "goes with --schedule-for"),
        ([], "nothing to predict from"),
        (["--target", "x", "--step-times", STEPS], "--target and --step-times given"),
        (["--target", "x"], "needs --system"),
        (["--step-times", STEPS, "--batch", "none"], "whole numbers"),
        (["--step-times", STEPS, "--num-draft-tokens", "0"], "whole numbers"),
        (["--from-table", str(ROOT / "examples/predict/one-data-set.yaml"), "--accept", "fast"], "one accept length"),
        ([*KIMI, "--routing", "odd"], "between, uniform or skewed"),
    ],
)
def test_mistakes_are_one_message(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["predict", *arguments])
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_an_accept_length_that_no_draft_can_reach_is_not_asked_for(tmp_path: Path) -> None:
    times = tmp_path / "times.yaml"
    times.write_text("name: x\nverify_ms: {1: 10, 2: 30, 4: 60}\ndraft_ms: {1: 1}\ndrafts: 1\n")
    asked = ["--step-times", str(times), "--accept", "0.6", "--num-draft-tokens", "1", "--batch", "1"]
    text = " ".join(call(*asked).split())
    assert "surely pays at" not in text
    assert "B=1: no drafter pays with k=1 (break-even" in text
