"""One log for each form that a release prints, with the same drafts behind all of them: `recorded/`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.readers.conftest import codes

from breakeven.readers.files import Told, read_files
from breakeven.versions import Version

RECORDED = Path(__file__).parent / "recorded"
SGLANG_LENGTHS = (2.17, 1.95, 1.80, 2.05, 2.31, 2.64, 1.57, 2.10)
SGLANG_MEAN = sum(SGLANG_LENGTHS) / len(SGLANG_LENGTHS)
VLLM_MEAN = 1 + (1.8 + 1.5 + 1.65 + 1.65) / 4


@pytest.mark.parametrize(
    ("name", "version", "formula", "num_drafted", "num_lines"),
    [
        ("sglang-0.5.2", "0.5.2", None, 3, 8),
        ("sglang-0.5.4", "0.5.4", "length / (steps + 1)", 3, 8),
        ("sglang-0.5.5", "0.5.5", "length / (steps + 1)", 7, 8),
        ("sglang-0.5.9", "0.5.9", "length / (drafted + 1)", 7, 8),
        ("sglang-0.5.10.post1", "0.5.10.post1", "length / (drafted + 1)", 3, 16),
        ("sglang-0.5.12", "0.5.12.post1", "(length - 1) / drafted", 3, 8),
        ("sglang-0.5.18", "0.5.18", "(length - 1) / drafted", 3, 8),
        ("sglang-0.5.23-cpu", "0.5.23", "(length - 1) / drafted", 3, 8),
    ],
)
def test_sglang(name: str, version: str, formula: str | None, num_drafted: int, num_lines: int) -> None:
    (reading,) = read_files([RECORDED / f"{name}.log"]).readings
    found = reading.acceptance
    assert (reading.engine, reading.version, reading.num_lines) == ("sglang", version, num_lines)
    assert found is not None
    assert found.accept_length == pytest.approx(SGLANG_MEAN)
    assert found.formula_status == ("release" if formula else "not printed")
    assert [one.formula for one in found.formulas] == ([formula] if formula else [])
    assert found.draft_acceptance == pytest.approx((SGLANG_MEAN - 1) / num_drafted)
    assert reading.running == 8
    assert reading.queued == 0
    assert codes(reading) == set()


def test_the_throughput_of_two_ranks_is_their_sum() -> None:
    (reading,) = read_files([RECORDED / "sglang-0.5.10.post1.log"]).readings
    assert reading.num_engines == 2
    assert reading.throughput == pytest.approx(2 * 803.5)


def test_a_log_without_drafts() -> None:
    (reading,) = read_files([RECORDED / "sglang-0.5.23-plain.log"]).readings
    assert reading.acceptance is None
    assert reading.throughput == pytest.approx(803.5)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("vllm-0.8.5", "0.8.5.post1"),
        ("vllm-0.9.2", "0.9.2"),
        ("vllm-0.10.2", "0.10.2"),
        ("vllm-0.32.0-cpu", "0.32.0"),
        ("vllm-0.33.0", "0.33.0"),
    ],
)
def test_vllm(name: str, version: str) -> None:
    (reading,) = read_files([RECORDED / f"{name}.log"]).readings
    found = reading.acceptance
    assert (reading.engine, reading.version, reading.num_lines) == ("vllm", version, 4)
    assert found is not None
    assert found.accept_length == pytest.approx(VLLM_MEAN)
    assert found.draft_acceptance == pytest.approx((VLLM_MEAN - 1) / 3)
    assert found.joint == pytest.approx((0.7625, 0.55, 0.3375))
    assert found.rounds == pytest.approx(4000)
    assert (found.num_drafted, found.formula_status) == (3, "not needed")
    assert reading.running == 8
    assert codes(reading) == set()


def test_vllm_of_an_unnamed_release_is_told_by_its_own_rates(tmp_path: Path) -> None:
    lines = (RECORDED / "vllm-0.8.5.log").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "a.log").write_text("".join(lines[1:]), encoding="utf-8")
    (reading,) = read_files([tmp_path / "a.log"]).readings
    assert reading.version is None
    assert reading.acceptance is not None
    assert reading.acceptance.accept_length == pytest.approx(VLLM_MEAN)


@pytest.mark.parametrize("name", ["llamacpp-pr-24536", "llamacpp-mean-len", "llamacpp-counts"])
def test_llamacpp(name: str) -> None:
    (reading,) = read_files([RECORDED / f"{name}.log"]).readings
    found = reading.acceptance
    assert (reading.engine, reading.num_lines) == ("llama.cpp", 3)
    assert found is not None
    assert (found.accepted, found.drafted) == (544, 887)
    assert found.draft_acceptance == pytest.approx(544 / 887)
    # by drafts where their number follows from what is printed, by all steps of the requests where only counts are
    expected = 1 + 544 / (256 - 167 + 353 - 257 + 201 - 120) if name.endswith("counts") else 1 + 544 / (87 + 97 + 80)
    assert found.accept_length == pytest.approx(expected, rel=0.005)
    assert reading.throughput_per_request == pytest.approx((256 / 2.29672 + 353 / 3.1332 + 201 / 1.9) / 3)


def test_gauges_of_sglang_are_marked_as_the_last_interval() -> None:
    (reading,) = read_files([RECORDED / "sglang-0.5.12.prom"], Told(version=Version.parse("0.5.12"))).readings
    found = reading.acceptance
    assert found is not None
    assert found.basis == "gauges: the last interval only"
    assert found.accept_length == pytest.approx(2.26)
    assert found.draft_acceptance == pytest.approx(0.42)
    assert (reading.running, reading.throughput) == (8, 812.5)


def test_gauges_of_an_unnamed_release_are_read_as_a_pair() -> None:
    (reading,) = read_files([RECORDED / "sglang-0.5.12.prom"]).readings
    assert reading.acceptance is not None
    assert reading.acceptance.formula_status == "inferred"
    assert reading.acceptance.draft_acceptance == pytest.approx(0.42)


REAL = Path(__file__).parents[1] / "engines" / "vllm" / "recorded"


def test_a_log_of_the_real_vllm_with_a_random_head() -> None:
    (reading,) = read_files([REAL / "0.32.0-cpu-eagle3.log"]).readings
    assert (reading.engine, reading.version) == ("vllm", "0.32.0")
    assert reading.settings["method"] == "eagle3"
    assert reading.acceptance is not None
    assert reading.acceptance.accept_length == 1.0
    assert reading.acceptance.joint == (0.0, 0.0, 0.0)
    assert codes(reading) == {"accept-length-at-floor"}


def test_metrics_of_the_real_vllm() -> None:
    eagle, ngram, plain = (read_files([REAL / f"0.32.0-cpu-{name}.metrics"]).readings[0] for name in ("eagle3", "ngram", "plain"))
    assert eagle.acceptance is not None
    assert eagle.acceptance.accept_length == 1.0
    assert "accept-length-at-floor" in codes(eagle)
    assert ngram.acceptance is not None
    assert ngram.acceptance.drafted_share is not None
    assert ngram.acceptance.drafted_share < 0.9
    assert "steps-without-drafts" in codes(ngram)
    assert plain.acceptance is None


LOCAL_LOG = """\
INFO 11-30 10:00:00 Breakeven's embedded engine 0.1.0
INFO 11-30 10:00:02 Serving /models/m as m: 30 layers, dtype float32, 2 threads, context 2048, at most 8 requests at once
INFO 11-30 10:00:10 Engine 000: Avg prompt throughput: 1.3 tokens/s, Avg generation throughput: 45.6 tokens/s, Running: 1 reqs, \
Waiting: 0 reqs
INFO 11-30 10:00:10 SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 30.00 tokens/s, \
Drafted throughput: 60.00 tokens/s, Accepted: 300 tokens, Drafted: 600 tokens, \
Per-position acceptance rate: 0.700, 0.500, 0.300, Avg Draft acceptance rate: 50.0%
"""
VLLM_BANNER = "INFO 11-30 11:00:00 [api_server.py:1] vLLM API server version 0.11.0\n"


def test_the_embedded_engine_is_called_so(tmp_path: Path) -> None:
    log = tmp_path / "local.log"
    log.write_text(LOCAL_LOG)
    (reading,) = read_files([log]).readings
    assert (reading.engine, reading.version) == ("local", None)
    assert reading.acceptance is not None
    assert reading.acceptance.accept_length == pytest.approx(2.5)
    # vLLM started after it, and the other way round
    words = LOCAL_LOG.split("\n", 2)[2]
    log.write_text(LOCAL_LOG + VLLM_BANNER + words + LOCAL_LOG)
    assert [reading.engine for reading in read_files([log]).readings] == ["local", "vllm", "local"]
    # somebody's prompt is no banner
    log.write_text(words + 'INFO 11-30 10:00:11 Received request: prompt: "Breakeven\'s embedded engine 0.1.0"\n' + words)
    assert {reading.engine for reading in read_files([log]).readings} == {"vllm"}


def test_its_metrics_are_called_so_too(tmp_path: Path) -> None:
    names = ("vllm:prompt_tokens", "vllm:generation_tokens", "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens")
    counters = [*names, "vllm:spec_decode_num_accepted_tokens", "breakeven:decode_steps"]
    dump = tmp_path / "metrics.txt"
    dump.write_text("".join(f"# TYPE {name} counter\n{name}_total 300\n" for name in counters))
    (reading,) = read_files([dump]).readings
    assert reading.engine == "local"
