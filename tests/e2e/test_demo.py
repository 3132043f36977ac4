"""The demo as a user runs it, with windows too short to judge by but every part real: model, servers, load, store, report."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PLAN = Path(__file__).parents[2] / "examples" / "smollm2-laptop" / "plan.yaml"


def breakeven(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "breakeven", *arguments], capture_output=True, text=True, cwd=cwd, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo's plan has run once, shortened."""
    folder = tmp_path_factory.mktemp("demo")
    plan = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    plan |= {
        "launches": {"min": 1, "max": 1},
        "load": [{"concurrency": 2}],
        "max_running_requests": 2,
        # a hundred rounds of the slowest arm on a slow machine: fewer do not make a drafter dead
        "trial": {"warmup_s": 0.5, "window_s": 20, "repeats": 1},
    }
    plan["workload"] |= {"max_tokens": 24, "kinds": ["chat"]}
    # paths in a plan are relative to its file, and this copy lies elsewhere
    for arm in ("eagle3-k1", "eagle3-k3"):
        speculation = plan["arms"][arm]["speculation"]
        speculation["drafter"] = str((PLAN.parent / speculation["drafter"]).resolve())
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    done = breakeven("bench", "plan.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "eagle3-untrained" in done.stdout
    assert str(folder / "runs" / "smollm2-laptop" / "report.html") in done.stdout.replace("\n", "")
    return folder


def test_the_verdict_tells_the_trained_drafter_the_dead_one_and_the_probe_apart(finished: Path) -> None:
    done = breakeven("verdict", "runs/smollm2-laptop", "--json", cwd=finished)
    result = json.loads(done.stdout)
    lengths = {cell["arm"]: cell["acceptance"] and cell["acceptance"]["accept_length"]["estimate"] for cell in result["cells"]}
    assert lengths["plain"] is None
    assert lengths["eagle3-untrained"] == 1.0
    assert lengths["ngram"] >= 1.0
    assert lengths["forced-2.0"] == pytest.approx(2.0, abs=0.1)
    # the trained drafter, whose card says 1.75 and 2.77 over longer answers
    assert 1.3 < lengths["eagle3-k1"] < 2.0
    assert 1.6 < lengths["eagle3-k3"] < 4.0
    floor = [finding for finding in result["findings"] if finding["code"] == "accept-length-at-floor"]
    assert len(floor) == 1
    assert "eagle3-untrained" in floor[0]["title"]
    # one launch an arm: the run says what it cannot know
    assert any("one launch an arm" in conclusion["text"] for conclusion in result["conclusions"])


def test_a_finished_run_is_shown_again_at_once(finished: Path) -> None:
    began = time.monotonic()
    done = breakeven("bench", "plan.yaml", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30
    assert "is ready after" not in done.stderr


@pytest.mark.parametrize("form", ["html", "markdown", "json", "csv"])
def test_every_report_is_written(finished: Path, form: str) -> None:
    done = breakeven("report", "runs/smollm2-laptop", "--format", form, "--out", f"report.{form}", cwd=finished)
    assert done.returncode == 0, done.stderr
    assert "eagle3-untrained" in (finished / f"report.{form}").read_text(encoding="utf-8")


def test_no_server_is_left(finished: Path) -> None:
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(finished) in part for part in process.info["cmdline"] or ())
    ]
    assert left == []
