"""`breakeven bench` from flags to exit code, on the fake engine."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breakeven.cli import app, main
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.stored_run import read_run

PLAN = """
name: small
engine: fake
launches: {min: 2, max: 2}
workload: {fixed_length: true, max_tokens: 32}
load: [{concurrency: 1}]
trial: {window_s: 10}
arms:
  plain: {}
  "eagle[red]": {speculation: {method: eagle3, drafter: random}, simulation: {joint: [0.7, 0.5, 0.3], cost_ratio: 1.3}}
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file


def bench(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["breakeven", "bench", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert isinstance(left.value.code, int)
    return left.value.code, " ".join(shown.err.split())


def test_a_dry_run_refuses_what_the_run_would(
    plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench(plan)[0] == 0
    assert bench(plan, "--dry-run")[0] == 0
    plan.write_text(PLAN.replace("max_tokens: 32", "max_tokens: 24"))
    assert bench(plan, "--dry-run", "--fresh")[0] == 0
    code, message = refused(capsys, monkeypatch, plan, "--dry-run")
    assert code == 2
    assert "was begun with another plan: workload.max_tokens: 32 -> 24" in message


def test_a_run_that_goes_on_says_what_is_kept(plan: Path) -> None:
    assert "kept" not in bench(plan)[2]
    plan.write_text(PLAN.replace("max: 2", "max: 3"))
    assert "Going on with runs/small: 4 trials are kept from an earlier start" in " ".join(bench(plan)[2].split())


def test_a_run_ends_with_a_verdict_and_a_report(plan: Path) -> None:
    code, out, err = bench(plan)
    assert code == 0
    assert "eagle[red]" in out
    assert str(Path("runs/small/report.html").absolute()) in out.replace("\n", "")
    assert Path("runs/small/report.html").read_text().lower().startswith("<!doctype html>")
    assert "eagle[red] at c=1, launch 2:" in err
    again_code, again_out, again_err = bench(plan)
    assert "nothing is measured again" in " ".join(again_err.split())
    assert (again_code, again_out) == (0, out)
    assert "launch" not in again_err


def test_json_goes_to_stdout_alone(plan: Path) -> None:
    code, out, _ = bench(plan, "--json")
    assert code == 0
    assert json.loads(out)["kind"] == "measured"


def test_flags_choose_name_place_and_prompts(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('"How are you?"\n')
    code, _, _ = bench(plan, "--name", "other", "--runs-dir", "elsewhere", "--prompts", "mine.jsonl")
    assert code == 0
    assert (tmp_path / "elsewhere" / "other" / "run.sqlite").is_file()
    assert str(tmp_path / "mine.jsonl") in (tmp_path / "elsewhere" / "other" / "plan.yaml").read_text()


def test_fresh_sets_the_earlier_run_aside(plan: Path) -> None:
    bench(plan)
    first = read_run(Path("runs/small")).trials[0].started_at_unix_s
    code, _, err = bench(plan, "--fresh")
    assert code == 0
    assert "runs/small.old-1" in err
    assert read_run(Path("runs/small.old-1")).trials[0].started_at_unix_s == first
    assert read_run(Path("runs/small")).trials[0].started_at_unix_s > first
    bench(plan, "--fresh")
    assert Path("runs/small.old-2").is_dir()


def test_dry_run_starts_nothing(plan: Path) -> None:
    code, out, _ = bench(plan, "--dry-run")
    assert code == 0
    assert "plain:\n  (simulated)" in out
    assert "80 prompts; 4 launches and 4 trials, 1 min 0 s of measuring" in out
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trial: {window_s: 10}", "trail: {window_s: 10}", "plan.yaml:7: unknown key 'trail' in the plan; did you mean 'trial'?"),
        ("joint: [0.7, 0.5, 0.3]", "joint: [0.7]", "declares joint acceptance at 1 positions"),
        ("fixed_length: true", "prompts: absent.jsonl", "absent.jsonl: cannot be read"),
        ("fixed_length: true", "kinds: [poetry]", "unknown kind of prompt: poetry"),
    ],
)
def test_bad_plans_exit_with_2_before_anything_is_written(
    plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    plan.write_text(PLAN.replace(old, new))
    code, err = refused(capsys, monkeypatch, plan)
    assert (code, message in err) == (2, True), err
    assert not Path("runs").exists()


def test_other_refusals(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "absent.yaml: cannot be read" in refused(capsys, monkeypatch, "absent.yaml")[1]
    assert "--name '../x': expected letters" in refused(capsys, monkeypatch, plan, "--name", "../x")[1]
    (tmp_path / "broken.jsonl").write_text('{"prompt": 3}\n')
    code, err = refused(capsys, monkeypatch, plan, "--prompts", "broken.jsonl")
    assert (code, "broken.jsonl: 1 broken line" in err) == (2, True)
    bench(plan)
    with RunLock(Path("runs/small")):
        assert "is measuring this run" in refused(capsys, monkeypatch, plan)[1]
        assert "is measuring this run" in refused(capsys, monkeypatch, plan, "--fresh")[1]
    connection = sqlite3.connect("runs/small/run.sqlite")
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    code, err = refused(capsys, monkeypatch, plan)
    assert (code, "written by a newer Breakeven (schema 7" in err) == (2, True)
    plan.write_text(PLAN.replace("window_s: 10", "window_s: 11"))
    assert bench(plan, "--fresh")[0] == 0


def test_another_plan_under_the_same_name_is_refused(
    plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(plan)
    plan.write_text(PLAN.replace("window_s: 10", "window_s: 11"))
    code, err = refused(capsys, monkeypatch, plan)
    assert (code, "trial.window_s: 10.0 -> 11.0" in err) == (2, True)
    assert len(read_run(Path("runs/small")).trials) == 4


def test_trials_that_are_all_void_still_give_a_report(plan: Path) -> None:
    plan.write_text(PLAN.replace("plain: {}", "plain: {simulation: {error_probability: 1.0}}"))
    for again in (False, True):  # nothing is measured the second time, and it is no success either
        code, out, err = bench(plan)
        assert code == 3
        assert ("void, errors" in err) != again
        assert "No verdict on plain: all its 6 trials are void (errors: " in " ".join(err.split())
        assert "Undecided: no arm has a figure to hold against the baseline's" in " ".join(out.split())


def test_a_dry_run_shows_commands_by_their_characters(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.experiment.measure.commands", lambda plan: [("plain", "serve '\x1b[31m'", "not \x07 sure")])
    code, shown, _ = bench(plan, "--dry-run")
    assert code == 0
    assert r"serve '\x1b[31m'" in shown
    assert r"not \x07 sure" in shown
    assert "\x1b" not in shown
