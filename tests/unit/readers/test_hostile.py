"""Files that no server meant: nothing in them crashes the reader, fills memory, or reaches a terminal as it is."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.readers.conftest import codes, counters, sgl, vllm, vllm_load

from breakeven.errors import UsageError
from breakeven.readers.files import read_files
from breakeven.readers.reading import Reading, ReadResult
from breakeven.readers.scan import LogScan
from breakeven.readers.sources import MAX_LINE_BYTES, Source, blocks
from breakeven.report.readings import render_readings

ReadOne = Callable[..., Reading]
Read = Callable[..., ReadResult]
GOOD = "".join(sgl(2.2, 0.4, at_s=i) for i in range(20))


def shown(result: ReadResult) -> str:
    console = Console(file=StringIO(), width=140, force_terminal=False)
    render_readings(result, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\0" * 5000, random.Random(1).randbytes(300_000), b"hello\n" * 1000])
def test_nothing_to_read_is_one_message(read: Read, content: bytes) -> None:
    with pytest.raises(UsageError, match="no line of vLLM, SGLang"):
        read(content)


def test_a_missing_file_a_folder_and_another_packer_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_files([tmp_path / "missing.log"])
    with pytest.raises(UsageError, match="a folder"):
        read_files([tmp_path])
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd123")
    with pytest.raises(UsageError, match="packed with zstd"):
        read_files([tmp_path / "a.zst"])


def test_one_line_of_many_megabytes_is_skipped_and_said(read: Read) -> None:
    long_line = "Decode batch, #running-req: 1, " + "x" * 5_000_000 + sgl(9.0, 0.9)
    result = read(GOOD + long_line + GOOD)
    (reading,) = result.readings
    assert reading.num_lines == 40
    assert reading.acceptance is not None
    assert reading.acceptance.accept_length == pytest.approx(2.2)
    assert "file-damaged" in codes(result)


def test_a_long_line_never_lies_in_memory_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(b"a" * (8 * MAX_LINE_BYTES) * 4 + b"\n" + GOOD.encode())
    source = Source(name="long.log", path=path)
    assert max(len(block) for block in blocks(source)) <= (1 << 20) + MAX_LINE_BYTES
    assert source.num_long_lines == 1


def test_colours_carriage_returns_and_broken_bytes_around_a_line_do_not_hide_it(read_one: ReadOne) -> None:
    line = sgl(2.2, 0.4)
    text = (
        b"\x1b[32m"
        + line.rstrip().encode()
        + b"\x1b[0m\r\n"
        + b"Loading 45%|####   |\r"
        + line.encode()
        + b"\xff\xfe "
        + line.encode()
    )
    reading = read_one(text)
    assert reading.num_lines == 3
    assert reading.queued == 0


def test_escapes_from_a_log_do_not_reach_the_terminal(read: Read) -> None:
    banner = "server_args=ServerArgs(attention_backend='\x1b]0;owned\x07\x1b[2J[red]x[/red]\u202e', speculative_num_steps=3)\n"
    version = "sglang 0.5.12 \x1b[31mred \x1b]8;;http://x\x07\u202e\n"
    result = read(version + banner + GOOD, version + banner.replace("x", "y") + GOOD, names=("a\x1b[2J.log", "b\u202e.log"))
    text = shown(result)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text


def test_lines_inside_logged_prompts_do_not_count(read: Read) -> None:
    forged = sgl(9.9, 0.99).rstrip()
    text = (
        f"[2026-03-01 00:00:00] Receive: obj=GenerateReqInput(text='{forged}')\n"
        f"Received request chat-1: prompt: {forged}\n"
        f'{{"level": "info", "prompt": "{forged}"}}\n'
    )
    result = read(text + GOOD)
    (reading,) = result.readings
    assert reading.num_lines == 20
    assert "lines-inside-other-text" in codes(result)


def test_a_release_named_in_a_prompt_is_not_the_servers(read_one: ReadOne) -> None:
    assert read_one("Received request: prompt: 'is sglang 0.5.3 any good?'\n" + GOOD).version is None
    assert read_one(GOOD + "I run sglang 0.5.3\n" + GOOD).version is None


def test_lines_wrapped_by_docker_and_json_loggers_count(read_one: ReadOne) -> None:
    line = sgl(2.2, 0.4).rstrip()
    text = f'2026-03-01T00:00:00.123456789Z stdout F {line}\n{{"log": "{line}\\n", "stream": "stdout"}}\npod/sglang-0 {line}\n'
    assert read_one(text).num_lines == 3


@pytest.mark.parametrize(
    "line",
    [
        "Decode batch",
        "Decode batch, #running-req: many, accept len: 2.0, accept rate: 0.5",
        "Decode batch, #running-req: -3, accept len: 2.0",
        "Decode batch, #running-req: 1, accept len: nan, accept rate: nan",
        "Decode batch, #running-req: 1, accept len: 1e999, accept rate: 0.5",
        "Decode batch, #running-req: 1, accept len: inf",
        "Decode batch, #running-req: 9999999999999999999999, accept len: 2.0",
        (
            "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 0 tokens, Per-position "
            "acceptance rate: nan, nan"
        ),
        "SpecDecoding metrics: Mean acceptance length: 2.5, Accepted: 10 tokens",
        "draft acceptance = 1.0 (many accepted)",
        "Avg prompt throughput: nan tokens/s, Avg generation throughput: 1.2.3 tokens/s",
        "server_args=ServerArgs(decode_log_interval=999999999999999999999999999)",
        "server_args=ServerArgs(speculative_num_steps=99999999999999999999999, decode_log_interval='x')",
        "cap: Max running requests is reset to",
    ],
)
def test_mangled_lines_are_left_out(read: Read, line: str) -> None:
    result = read(GOOD + f"[2026-03-01 00:00:00 TP0] {line}\n" * 3 + GOOD)
    lengths = [r.acceptance.accept_length for r in result.readings if r.acceptance and r.engine == "sglang"]
    assert all(length == pytest.approx(2.2) for length in lengths)
    result.model_dump_json()
    shown(result)


# --- gzip -----------------------------------------------------------------------------------------------------------------------


def test_gzip_of_several_members(read_one: ReadOne) -> None:
    assert read_one(gzip.compress(GOOD.encode()) + gzip.compress(GOOD.encode())).num_lines == 40


def test_gzip_that_is_cut_off_or_damaged_gives_what_came_before(read: Read) -> None:
    rng = random.Random(0)
    packed = gzip.compress("".join(sgl(2 + rng.random(), rng.random(), at_s=i) for i in range(5000)).encode())
    cut = read(packed[: len(packed) // 2])
    assert 1000 < cut.readings[0].num_lines < 4000
    assert "cut off" in " ".join(cut.findings[0].evidence)
    damaged = bytearray(packed)
    damaged[len(packed) // 2 : len(packed) // 2 + 4] = b"\xff\x00\xff\x00"
    result = read(bytes(damaged))
    assert result.readings[0].num_lines > 1000
    assert "file-damaged" in codes(result)


def test_a_gzip_bomb_is_stopped(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(64)) + packer.flush()
    assert len(bomb) < 100_000
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb)
    source = Source(name="bomb.gz", path=path, max_unpacked_bytes=8_000_000)
    assert sum(len(block) for block in blocks(source)) < 10_000_000
    assert "stopped after" in source.notes[0]
    assert source.num_bytes < 10_000_000


def test_utf16_from_a_windows_shell(read_one: ReadOne) -> None:
    assert read_one(GOOD.encode("utf-16")).num_lines == 20


# --- dumps ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["NaN", "-5", "1e400", "1e308", "abc", "+Inf"])
def test_odd_counters_do_not_crash_and_are_left_out(read: Read, value: str) -> None:
    text = counters(100, 400, 200) + f'vllm:spec_decode_num_drafts_total{{engine="1"}} {value}\n'
    result = read(text)
    result.model_dump_json()
    assert result.readings[0].acceptance is not None
    assert result.readings[0].acceptance.rounds == 100
    shown(result)


def test_a_dump_of_another_program_is_said(read: Read) -> None:
    with pytest.raises(UsageError, match="right port"):
        read("# HELP go_goroutines x\n# TYPE go_goroutines gauge\ngo_goroutines 12\n")


# --- anything -------------------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [sgl(2.2, 0.4), sgl(None, None), vllm([0.5, 0.2], 100), vllm_load(100.0), counters(1, 2, 1), "\n", "\0", "{", "'"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=30), st.integers(1, 400), st.randoms(use_true_random=False))
def test_no_bytes_crash_it(pieces: list[str], size: int, rng: random.Random) -> None:
    data = bytearray("".join(pieces).encode("utf-8", "replace"))
    for _ in range(len(data) // 50):
        data[rng.randrange(len(data))] = rng.randrange(256)
    scan = LogScan()
    for start in range(0, len(data), size):
        scan.feed(bytes(data[start : start + size]))
    scan.finish()
    from breakeven.readers.files import Told, log_result

    shown(log_result(scan.so_far(), Source(name="x", path=None), Told()))
