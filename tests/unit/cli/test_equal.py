"""`breakeven equal` from flags to exit code on the fake engine, its page, and what it adds to a run's verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.errors import EngineError, StoreError, UsageError
from breakeven.experiment import measure
from breakeven.experiment.answering import FORCED, NO_PLAIN

PAGE = (Path(__file__).parents[3] / "docs" / "equality.md").read_text(encoding="utf-8")
PLAN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
RUN = Path("runs/what-is-said")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN + "launches: {min: 2, max: 2}\ntrial: {window_s: 10}\n", encoding="utf-8")
    return file


def breakeven(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout


def test_the_example_of_the_page(plan: Path) -> None:
    code, out = breakeven("equal", plan, "--json")
    result = json.loads(out)
    (told,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert "".join(f"{arm['sentence']}.\n" for arm in result["arms"]) == told
    assert [(arm["arm"], arm["outcome"]) for arm in result["arms"]] == [("sound", "numerics"), ("lossy", "fault")]
    assert code == 1
    assert json.loads((RUN / "equality/result.json").read_text()) == result
    rows = [row for row in map(json.loads, (RUN / "equality/answers.jsonl").read_text().splitlines()) if "prompt" in row]
    assert len(rows) == 4 * 64
    assert {(row["arm"], row["pass"]) for row in rows} == {("plain", 1), ("plain", 2), ("sound", 1), ("lossy", 1)}
    again, shown = breakeven("equal", plan)
    assert again == 1
    assert "✗ lossy does not say what plain says" in " ".join(shown.split())
    assert breakeven("equal", plan, "--fresh", "--json")[1] == out
    assert (RUN / "equality.old-1/answers.jsonl").read_bytes() == (RUN / "equality/answers.jsonl").read_bytes()


def test_a_disk_without_room_is_noticed_before_anything_is_asked(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MIN_FREE_BYTES", 10**18)
    with pytest.raises(StoreError, match=r"free, at least .* wanted for samples and logs"):
        breakeven("equal", plan)
    assert not RUN.exists()


def test_every_flag_is_on_the_page() -> None:
    options = get_command(app).commands["equal"].params  # type: ignore[attr-defined]
    assert {flag for option in options for flag in option.opts if flag.startswith("--")} == set(re.findall(r"--[a-z-]+\b", PAGE))


def test_a_faulty_arm_is_not_recommended(plan: Path) -> None:
    _, before = breakeven("bench", plan, "--json")
    assert "lossy" in json.loads(before)["decision"]
    assert not [finding for finding in json.loads(before)["findings"] if finding["code"].startswith("output-")]
    breakeven("equal", plan)
    _, after = breakeven("verdict", RUN, "--json")
    result = json.loads(after)
    assert result["headline"].startswith("lossy changes the output. Of the others: Speculation pays at c=8: sound")
    assert result["decision"].startswith("Do not run lossy: the answers are not plain's (breakeven equal). Run sound")
    outcomes = {item["arm"]: item["outcome"] for item in result["comparisons"]}
    assert outcomes == {"sound": "pays", "lossy": None}
    assert {cell["arm"] for cell in result["cells"]} == {"plain", "sound", "lossy"}
    assert not [conclusion for conclusion in result["conclusions"] if "lossy" in conclusion["text"]]
    assert "output differs" in breakeven("report", RUN, "--format", "csv")[1]
    assert "✗ output differs" in breakeven("report", RUN, "--format", "markdown")[1]
    codes = [finding["code"] for finding in result["findings"]]
    assert {"output-differs", "output-equal-but-rounding"} <= set(codes)
    assert "output-differs" in breakeven("report", RUN, "--format", "markdown")[1]
    assert breakeven("bench", plan)[0] == 0


def test_a_check_of_another_model_does_not_count(plan: Path) -> None:
    breakeven("bench", plan)
    breakeven("equal", plan)
    file = RUN / "equality/result.json"
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"fingerprints": {"target.fingerprint": "other"}}))
    assert "output-differs" in breakeven("verdict", RUN, "--json")[1]  # the fake engine has no model to compare
    import sqlite3

    with sqlite3.connect(RUN / "run.sqlite") as connection:
        connection.execute("INSERT INTO provenance VALUES ('target.fingerprint', 'mine')")
    connection.close()
    shown = json.loads(breakeven("verdict", RUN, "--json")[1])
    assert shown["findings"][0]["code"] == "output-check-outdated"
    assert not shown["headline"].startswith("lossy changes")


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"schema_version": 1}', "\x00"])
def test_a_damaged_result_is_one_message(plan: Path, damage: str) -> None:
    breakeven("bench", plan)
    breakeven("equal", plan)
    (RUN / "equality/result.json").write_text(damage)
    with pytest.raises(StoreError, match="check again"):
        breakeven("verdict", RUN)


def test_arms_that_cannot_be_compared(plan: Path) -> None:
    forced = "  forced: {speculation: {method: eagle3, drafter: random, forced_accept_length: 2.0}}\n"
    other = "  other: {engine: sglang, url: 'http://127.0.0.1:9', speculation: {method: eagle3, drafter: random}}\n"
    text = plan.read_text().replace("launches:", f"{forced}{other}launches:").replace("{max_tokens: 48}", "{fixed_length: true}")
    plan.write_text(text)
    code, out = breakeven("equal", plan, "--json", "--num-prompts", 16)
    assert code in (0, 1)
    assert json.loads(out)["left_out"] == {"forced": FORCED, "other": NO_PLAIN}
    plan.write_text("name: a\nengine: fake\nload: [{concurrency: 1}]\narms: {plain: {}}\n")
    with pytest.raises(UsageError, match="nothing to compare \\(no arm speculates\\)"):
        breakeven("equal", plan)


def test_an_arm_that_does_not_start_is_left_out(plan: Path) -> None:
    plan.write_text(
        "name: gone\nengine: local\nload: [{concurrency: 1}]\narms:\n  plain: {url: 'http://127.0.0.1:9'}\n"
        "  ngram: {url: 'http://127.0.0.1:9', speculation: {method: ngram}}\n"
    )
    with pytest.raises(EngineError, match="no arm could be compared"):
        breakeven("equal", plan)


def test_another_plan_under_the_same_name_is_refused(plan: Path) -> None:
    breakeven("bench", plan)
    plan.write_text(plan.read_text().replace("max_tokens: 48", "max_tokens: 40"))
    with pytest.raises(StoreError, match="was begun with another plan"):
        breakeven("equal", plan)
