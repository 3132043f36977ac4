"""breakeven serve and stop on the embedded engine: measured, left running by a process that is gone, ended for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PLAN = """
name: tiny
target: {target}
launches: {{min: 1, max: 1}}
max_running_requests: 2
num_threads: 1
workload: {{fixed_length: true, max_tokens: 24}}
load: [{{concurrency: 1}}]
trial: {{warmup_s: 0.1, window_s: 0.5}}
side_by_side: true
arms:
  plain:
  ngram: {{speculation: {{method: ngram}}}}
"""
TIMEOUT_S = 120

FindMarked = Callable[[str], dict[int, str]]
Breakeven = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def mark() -> str:
    return f"BREAKEVEN_TEST={uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def environment(mark: str) -> dict[str, str]:
    return os.environ | dict([mark.split("=")]) | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def breakeven(environment: dict[str, str]) -> Breakeven:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "breakeven", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    return run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, breakeven: Breakeven) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "plan.yaml").write_text(PLAN.format(target=tiny_model))
    done = breakeven("bench", folder / "plan.yaml", "--runs-dir", folder / "runs")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "tiny"


@pytest.fixture(autouse=True)
def _nothing_left(mark: str, find_marked: FindMarked) -> Iterator[None]:
    yield
    # the watchdog of a killed start has ten seconds
    until_s = time.monotonic() + 12
    while (left := find_marked(mark)) and time.monotonic() < until_s:
        time.sleep(0.2)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def ask(url: str, model: str) -> dict[str, Any]:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def test_detached_it_outlives_everything_but_stop(
    run_folder: Path, breakeven: Breakeven, environment: dict[str, str], mark: str, find_marked: FindMarked
) -> None:
    # the shell that starts it leads a session; killed with -9, it takes neither its group nor the server along
    command = [sys.executable, "-m", "breakeven", "serve", str(run_folder), "--arm", "ngram", "--detach", "--json"]
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$@"; echo done; sleep 300', "sh", *command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        text = "".join(iter(parent.stdout.readline, "done\n"))
        os.killpg(parent.pid, signal.SIGKILL)
    served = json.loads(text)
    assert (served["arm"], served["load"], served["detached"]) == ("ngram", "c=1", True)
    assert served["reproduction"]["num_launches"] == 1
    assert served["reproduction"]["speed"] > 0
    time.sleep(1.0)
    assert ask(served["url"], served["model"])["usage"]["completion_tokens"] == 4
    assert set(find_marked(mark)) == {served["pid"]}

    taken = breakeven("serve", run_folder, "--port", served["url"].rpartition(":")[2])
    assert taken.returncode == 2
    assert "is taken" in taken.stderr

    stopped = breakeven("stop", run_folder, "--json")
    assert stopped.returncode == 0, stopped.stderr
    (ended,) = json.loads(stopped.stdout)["ended"]
    assert ended["pids"] == [served["pid"]]
    assert not find_marked(mark)
    again = breakeven("stop", run_folder)
    assert (again.returncode, again.stdout) == (0, f"Nothing of {run_folder} is being served.\n")


def test_in_the_foreground_it_stays_until_ctrl_c(run_folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "breakeven", "serve", str(run_folder), "--arm", "plain"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        lines = []
        for line in serving.stdout:
            lines.append(line.rstrip())
            if "breakeven.drafter.serving" in line:
                break
        serving.send_signal(signal.SIGINT)
        _, errors = serving.communicate(timeout=30)
    assert serving.returncode == 0, errors
    assert lines[0] == "Serving plain, as asked for."
    assert any("one launch" in line for line in lines)
    assert any("Ctrl-C ends it" in line for line in lines)


def test_a_server_that_dies_is_an_engine_error(run_folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "breakeven", "serve", str(run_folder), "--arm", "plain", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        text = "".join(iter(serving.stdout.readline, "}\n")) + "}"
        os.kill(json.loads(text)["pid"], signal.SIGKILL)
        _, errors = serving.communicate(timeout=30)
    assert serving.returncode == 3
    assert "SIGKILL" in errors
    assert "while it was being served" in " ".join(errors.split())
    assert "Traceback" not in errors


def test_killed_with_9_in_the_foreground_it_leaves_nothing(run_folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "breakeven", "serve", str(run_folder), "--arm", "plain", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "{\n"
        serving.kill()
