"""What a serving benchmark prints is no log; its figures belong into a table."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from breakeven.errors import UsageError
from breakeven.readers.files import read_files

VLLM = """============ Serving Benchmark Result ============
Successful requests:                     80
Maximum request concurrency:             8
Total generated tokens:                  20480
Output token throughput (tok/s):         886.58
Total Token throughput (tok/s):          1329.87
Mean TPOT (ms):                          8.61
Mean ITL (ms):                           21.30
---------------Speculative Decoding---------------
Acceptance rate (%):                     49.30
Acceptance length:                       2.48
==================================================
"""
SGLANG = """============ Serving Benchmark Result ============
Backend:                                 sglang
Max request concurrency:                 not set
Successful requests:                     10
Total generated tokens:                  5000
Output token throughput (tok/s):         612.00
Accept length:                           3.01
==================================================
"""


def message(path: Path) -> str:
    with pytest.raises(UsageError) as refused:
        read_files([path])
    return str(refused.value)


def test_rows_of_a_table_are_given(tmp_path: Path) -> None:
    path = tmp_path / "bench.txt"
    path.write_text(VLLM + SGLANG, encoding="utf-8")
    told = message(path)
    assert "the summary of a serving benchmark, not a log" in told
    rows = [yaml.safe_load(line.strip())[0] for line in told.splitlines() if line.strip().startswith("- {")]
    assert rows == [
        {
            "arm": "NAME",
            "concurrency": 8,
            "throughput_tok_s": 886.58,
            "tpot_ms": 8.61,
            "accept_length": 2.48,
            "output_tokens": 256,
        },
        {"arm": "NAME", "throughput_tok_s": 612.0, "accept_length": 3.01, "output_tokens": 500},
    ]


@pytest.mark.parametrize("text", ["nothing of the kind\n", "============ Serving Benchmark Result ============\nx: y\n"])
def test_other_text_is_refused_as_before(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    assert "no line of vLLM, SGLang or llama.cpp" in message(path)


def test_a_hostile_summary_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(VLLM.replace("886.58", "1\x1b[2J, arm: {x: y}").replace("2.48", "9" * 400), encoding="utf-8")
    told = message(path)
    assert "\x1b" not in told
    assert "throughput_tok_s" not in told
    assert "999" not in told
