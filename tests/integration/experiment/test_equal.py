"""`breakeven equal` on the embedded engine: lossless there, said so, and nothing is left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PLAN = """
name: tiny
target: {target}
max_running_requests: 4
num_threads: 1
workload: {{max_tokens: 24}}
load: [{{concurrency: 4}}]
arms:
  plain:
  ngram: {{speculation: {{method: ngram}}}}
  eagle3: {{speculation: {{method: eagle3, drafter: random}}}}
"""


def test_speculation_in_the_embedded_engine_changes_nothing(
    tmp_path: Path, tiny_model: Path, find_marked: Callable[[str], dict[int, str]]
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.format(target=tiny_model))
    mark = f"BREAKEVEN_TEST={uuid.uuid4().hex}"
    command = [sys.executable, "-m", "breakeven", "equal", "plan.yaml", "--num-prompts", "40", "--json"]
    environment = os.environ | dict([mark.split("=")]) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for arm in result["arms"]:
        # equal, or, where random weights happen to loop, undecided for that reason; never different
        assert arm["speculative"]["num_parted"] == 0, arm
        assert arm["outcome"] == "equal" or "loop" in arm["sentence"], arm
        assert arm["num_prompts"] == 40
    assert {arm["arm"] for arm in result["arms"]} == {"ngram", "eagle3"}
    lines = (tmp_path / "runs/tiny/equality/answers.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "prompt" in row]
    assert len(rows) == 4 * 40
    assert all(row["token_ids"] and not row["tokens"] for row in rows)  # it tells numbers and no log-probabilities
    assert find_marked(mark) == {}
