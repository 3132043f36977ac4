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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--break-even", "3:1.95", "--accept", "3:2.20", "--batch", "8", "--context", "4096"], "--context goes with --target"),
        (["--step-times", STEPS, "--tp", "8"], "--tp goes with --target"),
        (["--step-times", STEPS, "--plain-speed", "100"], "--plain-speed goes with --from-table"),
        (["--from-table", "x.csv", "--engine", "vllm"], "--engine goes with --target"),
        (["--from-table", "x.csv", "--batch", "8"], "--batch does not go with --from-table"),
        (["--step-times", STEPS, "--schedule-for", "vllm"], "--schedule-for goes with --from-run"),
        (["--step-times", STEPS, "--num-draft-tokens", "129"], "whole numbers from 1 to 128"),
        ([*KIMI, "--measured-plain", "B=1:140 tok/s", "--measured-plain", "1:70 tok/s"], "B=1 was given already"),
    ],
)
def test_an_option_that_would_be_overlooked_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["predict", *arguments])
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_what_is_needed_is_rounded_up() -> None:
    asked = ["--break-even", "3:1.95", "--accept", "3:2.210", "--batch", "8"]
    text = " ".join(call(*asked).split())
    # 0.614 to 0.618 was told as "from 0.61 to 0.61", and "0.00 more"
    assert "conditional acceptance from 0.61 to 0.62" in text
    assert "Or 0.01 more at every position" in text


def test_an_accept_length_that_is_open_is_shown_with_its_interval() -> None:
    text = " ".join(call("--break-even", "1:1.40,3:1.95", "--accept", "3:2.20", "--batch", "8").split())
    assert "Accept length, as far as it is known: k=1 1.61 [1.50, 1.80]" in text


def test_a_table_says_what_was_taken_for_granted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "model,drafter,steps,topk,draft_tokens,workload,accept_length,speedup,notes\nM,d,3,1,4,a,2.45,1.34,\nM,d,3,1,4,b,2.6,,\n"
    )
    text = " ".join(call("--from-table", str(path)).split())
    assert "No row says its load" in text
    assert "Columns left alone: notes" in text


def test_a_plain_step_that_no_machine_has_predicts_nothing() -> None:
    pytest.importorskip("aiconfigurator_core")
    text = " ".join(call(*KIMI, "--batch", "1", "--measured-plain", "B=1:14000 tok/s").split())
    assert "Nothing could be predicted" in text
    assert "no machine of this kind is that fast" in text
