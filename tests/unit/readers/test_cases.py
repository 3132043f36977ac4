"""Public reports rebuilt as logs and dumps, with the right answer, and others of the same kinds with other numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.readers.conftest import codes, prefill, sgl, vllm
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.readers.files import Told
from breakeven.readers.reading import Reading, ReadResult
from breakeven.versions import Version

ReadOne = Callable[..., Reading]
Read = Callable[..., ReadResult]


# --- a log of the old formula with a warm-up line (sglang issue 11948) ---------------------------------------------------------

WARM_UP_CASE = [(2.17, 0.54, 0.39), (1.95, 0.49, 178.86), (1.80, 0.45, 165.41), (2.05, 0.51, 188.68), (1.80, 0.45, 165.59)]


@pytest.mark.parametrize("style", ["0.5.3", "0.5.4", "0.5.6"])
def test_warm_up_line_is_left_out_and_the_rate_is_not_the_acceptance(read_one: ReadOne, style: str) -> None:
    lines = [*WARM_UP_CASE, (1.57, 0.39, 144.0)]
    text = "".join(
        sgl(length, rate, speed=speed, running=1, tokens=186 + 40 * i, at_s=i, style=style)
        for i, (length, rate, speed) in enumerate(lines)
    )
    reading = read_one(text)
    found = reading.acceptance
    assert found is not None
    assert found.formula_status == "inferred"
    assert (found.formulas[0].formula, found.num_drafted) == ("length / (drafted + 1)", 3)
    assert found.accept_length == pytest.approx(1.834)
    assert found.mean_of_lines == pytest.approx(1.834)
    assert found.draft_acceptance == pytest.approx(0.278, abs=0.001)
    assert reading.throughput == pytest.approx((178.86 + 165.41 + 188.68 + 165.59 + 144) / 5)
    assert "0.39" in reading.excluded[0]
    assert not codes(reading)


def test_no_warm_up_line_no_exclusion(read_one: ReadOne) -> None:
    reading = read_one("".join(sgl(1.95, 0.49, speed=170.0 + i, running=1, at_s=i) for i in range(6)))
    assert reading.excluded == ()
    assert reading.throughput == pytest.approx(172.5)


@pytest.mark.parametrize(
    ("drafts", "lengths"), [(2, [1.7, 2.2, 1.95, 1.84]), (5, [3.4, 2.1, 4.4, 2.75]), (7, [1.2, 5.0, 3.3, 2.9])]
)
@pytest.mark.parametrize("is_old", [True, False])
def test_the_formula_is_inferred_for_other_numbers_of_drafts(
    read_one: ReadOne, drafts: int, lengths: list[float], is_old: bool
) -> None:
    text = "".join(
        sgl(length, length / (drafts + 1) if is_old else (length - 1) / drafts, speed=0.4 if i == 0 else 150.0, at_s=i)
        for i, length in enumerate([2.0, *lengths])
    )
    found = read_one(text).acceptance
    assert found is not None
    assert found.formula_status == "inferred"
    assert found.num_drafted == drafts
    mean = sum(lengths) / len(lengths)
    assert found.draft_acceptance == pytest.approx((mean - 1) / drafts)


def test_an_ambiguous_pair_gives_both_readings_and_asks(read_one: ReadOne) -> None:
    reading = read_one("".join(sgl(2.0, 0.5, at_s=i) for i in range(6)))
    found = reading.acceptance
    assert found is not None
    assert found.formula_status == "ambiguous"
    assert found.accept_length == pytest.approx(2.0)
    assert found.draft_acceptance is None
    assert {(f.num_drafted, round(f.draft_acceptance or 0, 3)) for f in found.formulas} == {(2, 0.5), (3, 0.333)}
    (finding,) = [f for f in reading.findings if f.code == "rate-ambiguous"]
    assert "--speculative-num-draft-tokens" in finding.remedy
    assert "release" in finding.remedy


@pytest.mark.parametrize(
    ("told", "acceptance"),
    [(Told(version=Version.parse("0.5.9")), 1 / 3), (Told(version=Version.parse("0.5.20")), 0.5), (Told(draft_tokens=4), 1 / 3)],
)
def test_what_the_user_says_settles_it(read_one: ReadOne, told: Told, acceptance: float) -> None:
    found = read_one("".join(sgl(2.0, 0.5, at_s=i) for i in range(6)), told).acceptance
    assert found is not None
    assert found.draft_acceptance == pytest.approx(acceptance)


# --- only position 0 is ever right (speculators issue 613) ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("joint", "drafts", "drafted"),
    [
        ([0.207] + [0.0] * 14, 691, 15),
        ([0.5] + [0.0] * 2, 200, 3),
        ([0.12] + [0.0] * 4, 5000, 5),
    ],
)
def test_dead_positions_are_a_serving_fault(read_one: ReadOne, joint: list[float], drafts: int, drafted: int) -> None:
    reading = read_one(vllm(joint, drafts))
    (finding,) = [f for f in reading.findings if f.severity == "error"]
    assert finding.code == "only-first-position-alive"
    assert f"{drafts} drafts" in " ".join(finding.evidence)
    assert "More training does not help" in finding.remedy
    assert "quantization" in finding.remedy
    assert reading.acceptance is not None
    assert reading.acceptance.num_drafted == drafted


@pytest.mark.parametrize(
    ("joint", "drafts"),
    [([0.207, 0.040, 0.009], 5000), ([0.05, 0.0, 0.0], 200), ([0.2, 0.0, 0.0], 12), ([0.0, 0.0, 0.0], 500), ([0.7, 0.5, 0.3], 900)],
)
def test_a_weak_head_and_a_short_log_are_not_called_dead(read_one: ReadOne, joint: list[float], drafts: int) -> None:
    assert not {"only-first-position-alive", "positions-dead"} & codes(read_one(vllm(joint, drafts)))


def test_positions_dead_from_the_third_on(read_one: ReadOne) -> None:
    reading = read_one("".join(vllm([0.71, 0.52, 0.0, 0.0], 300, at_s=10 * i) for i in range(4)))
    (finding,) = [f for f in reading.findings if f.code == "positions-dead"]
    assert "Only positions 0 to 1" in finding.title


# --- host cache (sglang issue 32176) --------------------------------------------------------------------------------------------


def phase(length: float, num_lines: int, at_s: int, *, drafts: int = 5, cached: int = 0, spread: float = 0.0, seed: int = 0) -> str:
    rng = random.Random(seed + at_s)
    text = ""
    for i in range(num_lines):
        shown = round(length + rng.gauss(0, spread), 2)
        text += (prefill(60, cached, at_s + i) if cached else "") + sgl(shown, (shown - 1) / drafts, at_s=at_s + i)
    return text


FLUSH = "[2026-03-01 00:00:39 TP0] Cache flushed successfully!\n"
HICACHE = "[2026-03-01 00:00:00] server_args=ServerArgs(enable_hierarchical_cache=True, speculative_algorithm='EAGLE')\n"


@pytest.mark.parametrize(
    ("levels", "spread", "num_lines"),
    [
        ((4.487, 1.589, 4.331), 0.0, 10),
        ((4.487, 1.589, 4.331), 0.2, 30),
        ((2.9, 1.4, 2.8), 0.1, 20),
        ((4.487, 1.589, 4.331), 0.0, 1),
    ],
)
def test_acceptance_that_collapses_with_cached_prefixes_and_returns_after_a_flush(
    read_one: ReadOne, levels: tuple[float, float, float], spread: float, num_lines: int
) -> None:
    high, low, back = levels
    text = (
        HICACHE
        + phase(high, num_lines, 0, spread=spread)
        + phase(low, num_lines, 100, cached=4000, spread=spread)
        + FLUSH
        + phase(back, num_lines, 200, spread=spread)
    )
    reading = read_one(text)
    (finding,) = [f for f in reading.findings if f.severity == "error"]
    assert finding.code == "accept-length-falls-after-cache-reuse"
    assert finding.confidence == "high"
    assert "after a cache flush" in finding.title
    assert "HiCache" in finding.remedy
    assert {"accept-length-drifts", "accept-length-falls-with-context"}.isdisjoint(codes(reading))
    found = reading.acceptance
    assert found is not None
    assert found.num_drafted == 5


def test_a_drift_of_two_percent_over_three_rounds_is_noise(read_one: ReadOne) -> None:
    reading = read_one(phase(4.438, 10, 0) + phase(4.386, 10, 100) + phase(4.353, 10, 200))
    assert codes(reading) == set()
    assert reading.acceptance is not None
    assert reading.acceptance.formulas[0].formula == "(length - 1) / drafted"


def test_without_any_word_of_a_cache_the_collapse_is_called_that_and_the_flush_is_the_test(read_one: ReadOne) -> None:
    (finding,) = read_one(phase(3.0, 10, 0) + phase(1.5, 10, 100) + phase(2.9, 10, 200)).findings
    assert finding.code == "accept-length-collapses"
    assert "Flush" in finding.remedy


def test_the_three_rounds_as_three_logs(read: Read) -> None:
    result = read(phase(4.487, 5, 0), phase(1.589, 5, 0), phase(4.331, 5, 0))
    assert "accept-length-collapses" in codes(result)
    assert [r.acceptance.num_drafted for r in result.readings if r.acceptance] == [5, 5, 5]
    assert "rate-settled-by-other-logs" in codes(result.readings[1])


# --- accept length must not depend on batch (sglang PR 21212) -------------------------------------------------------------------


def batches(
    levels: dict[int, float], num_lines: int, *, backend: str = "", drafts: int = 3, spread: float = 0.0, seed: int = 1
) -> str:
    rng = random.Random(seed)
    banner = f"[2026-03-01 00:00:00] server_args=ServerArgs(attention_backend='{backend}', speculative_num_steps={drafts}, "
    text = banner + f"speculative_eagle_topk=1, speculative_num_draft_tokens={drafts + 1})\n" if backend else ""
    at_s = 0
    for running, length in levels.items():
        for _ in range(num_lines):
            shown = round(length + rng.gauss(0, spread / running**0.5), 2)
            text += sgl(shown, (shown - 1) / drafts, running=running, speed=running * 60.0, tokens=running * 900, at_s=at_s)
            at_s += 1
    return text


@pytest.mark.parametrize(
    ("levels", "num_lines", "spread"),
    [({2: 2.41, 32: 2.27}, 12, 0.0), ({2: 2.41, 32: 2.27}, 60, 0.15), ({1: 3.1, 4: 3.05, 16: 2.8, 64: 2.5}, 20, 0.1)],
)
def test_a_fall_with_batch_is_a_fault(read_one: ReadOne, levels: dict[int, float], num_lines: int, spread: float) -> None:
    reading = read_one(batches(levels, num_lines, spread=spread))
    assert codes(reading) & {"accept-length-falls-with-batch"}
    (finding,) = [f for f in reading.findings if f.code == "accept-length-falls-with-batch"]
    assert "attention backend" in finding.remedy
    assert "accept-length-drifts" not in codes(reading)


@pytest.mark.parametrize(
    ("levels", "num_lines", "spread"),
    [
        ({2: 2.49, 32: 2.52}, 12, 0.0),
        ({2: 2.52, 32: 2.49}, 200, 0.1),
        ({2: 2.52, 32: 2.49}, 2, 0.0),
        ({1: 3.0, 8: 2.96, 64: 2.94}, 50, 0.2),
    ],
)
def test_a_few_hundredths_between_batches_are_noise(
    read_one: ReadOne, levels: dict[int, float], num_lines: int, spread: float
) -> None:
    allowed = {"rate-ambiguous", "accept-length-may-fall-with-batch"} if spread else {"rate-ambiguous"}
    assert codes(read_one(batches(levels, num_lines, spread=spread))) <= allowed


def test_one_line_a_batch_decides_nothing_and_says_how_many_would(read_one: ReadOne) -> None:
    reading = read_one(batches({2: 2.41, 32: 2.27}, 1))
    assert "accept-length-falls-with-batch" not in codes(reading)
    finding = next((f for f in reading.findings if f.code == "accept-length-may-fall-with-batch"), None)
    assert finding is not None
    assert finding.severity == "info"
    assert "at least" in finding.remedy


def test_two_backends_compared(read: Read) -> None:
    faulty, sound = batches({2: 2.41, 32: 2.27}, 200, backend="trtllm_mla"), batches({2: 2.49, 32: 2.52}, 200, backend="flashinfer")
    result = read(faulty, sound, names=("trtllm.log", "flashinfer.log"))
    assert "accept-length-falls-with-batch" in codes(result.readings[0])
    assert codes(result.readings[1]) == set()
    (comparison,) = result.comparisons
    (finding,) = comparison.findings
    assert finding.code == "accept-lengths-differ"
    assert "lower in trtllm.log, already at batch 2 and the gap grows with the batch" in finding.title
    assert "attention backend" in finding.remedy
    assert {(d.running, d.judgement) for d in comparison.differences} == {(None, "effect"), (2, "effect"), (32, "effect")}


def test_the_fixed_backend_against_the_sound_one_is_noise(read: Read) -> None:
    (comparison,) = read(batches({2: 2.52, 32: 2.52}, 40), batches({2: 2.49, 32: 2.52}, 40)).comparisons
    assert [f.code for f in comparison.findings] == ["accept-lengths-alike"]


# --- the same 0.42, two verdicts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("banner", "length", "acceptance", "speedup", "outcome"),
    [
        ("sglang 0.5.9", 1.68, 0.227, 0.86, "slower"),
        ("sglang 0.5.12", 2.26, 0.42, 1.16, "pays"),
        ("[2026-03-01 00:00:00] SGLang version: 0.5.9.post1", 1.68, 0.227, 0.86, "slower"),
        ("image: lmsysorg/sglang:v0.5.12.post1-cu129", 2.26, 0.42, 1.16, "pays"),
        ("sglang==0.5.5", 1.68, 0.227, 0.86, "slower"),
    ],
)
def test_one_rate_of_two_releases(
    read_one: ReadOne, banner: str, length: float, acceptance: float, speedup: float, outcome: str
) -> None:
    args = "server_args=ServerArgs(speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)\n"
    text = f"{banner}\n{args}" + "".join(sgl(length, 0.42, at_s=i) for i in range(40))
    reading = read_one(text, Told(break_even=1.95))
    found = reading.acceptance
    assert found is not None
    assert reading.version is not None
    assert reading.version in banner
    assert found.formula_status == "release"
    assert found.draft_acceptance == pytest.approx(acceptance, abs=0.001)
    assert found.decode_speedup == pytest.approx(speedup, abs=0.005)
    (finding,) = reading.findings
    assert outcome in finding.title


def test_a_release_that_does_not_print_these_pairs_is_contradicted(read_one: ReadOne) -> None:
    reading = read_one(
        "sglang 0.5.12\n" + "".join(sgl(length, length / 4, at_s=i) for i, length in enumerate((1.68, 2.1, 1.9, 2.4)))
    )
    (finding,) = [f for f in reading.findings if f.code == "rate-contradicts-release"]
    assert "length / (drafted + 1)" in " ".join(finding.evidence)
    assert reading.acceptance is not None
    assert reading.acceptance.draft_acceptance is None


# --- as a user calls it ---------------------------------------------------------------------------------------------------------


def test_the_example_of_the_help_text_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from breakeven.cli.read import EXAMPLE

    (tmp_path / "server.log").write_text("".join(sgl(1.68, 0.42, at_s=i) for i in range(6)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = EXAMPLE.split()
    assert words[0] == "breakeven"
    done = CliRunner().invoke(app, words[1:], terminal_width=120)
    assert done.exit_code == 0, done.output
    assert "accept length 1.68" in done.output
    shown = CliRunner().invoke(app, ["read", "--help"], terminal_width=200)
    assert EXAMPLE in " ".join(shown.output.split())


# --- lines with counts alone, counts that cannot be, llama.cpp's own words ------------------------------------------------------

COUNTS_ALONE = "".join(
    f"INFO 05-01 10:01:{second} [metrics.py:72] SpecDecoding metrics: Draft acceptance rate: {rate}%, Accepted: {accepted} tokens, "
    "Drafted: 1500 tokens\n"
    for second, rate, accepted in (("00", 50.0, 750), ("10", 54.0, 810))
)


def test_counts_without_rounds_give_a_share_and_no_length(read_one: ReadOne) -> None:
    reading = read_one(COUNTS_ALONE)
    found = reading.acceptance
    assert found is not None
    assert found.accept_length is None
    assert found.draft_acceptance == pytest.approx(0.52)
    assert codes(reading) == {"number-of-drafts-unknown"}


def test_the_number_of_drafts_makes_a_length_of_them(read_one: ReadOne) -> None:
    reading = read_one(COUNTS_ALONE, told=Told(draft_tokens=3))
    found = reading.acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(1.0 + 3 * 0.52)
    assert found.rounds == pytest.approx(1000.0)
    assert not codes(reading)


@pytest.mark.parametrize(("drafts", "drafted", "accepted"), [(1000, 3000, 4200), (1000, 800, 500)])
def test_counts_that_no_engine_can_have_give_no_length(read_one: ReadOne, drafts: int, drafted: int, accepted: int) -> None:
    reading = read_one(
        f'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}.0\n'
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}.0\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}.0\n'
    )
    assert reading.acceptance is not None
    assert (reading.acceptance.accept_length, reading.acceptance.draft_acceptance) == (None, None)
    assert "counters-contradict" in codes(reading)
    assert "accept-length-at-ceiling" not in codes(reading)


def test_llama_cpps_prompt_eval_time_is_no_quoted_prompt(read: Read) -> None:
    result = read(
        "prompt eval time =     100.00 ms /    50 tokens (    2.00 ms per token,   500.00 tokens per second)\n"
        "       eval time =    2000.00 ms /   200 tokens (   10.00 ms per token,   100.00 tokens per second)\n"
        "draft acceptance rate = 0.60000 (  120 accepted /   200 generated)\n"
    )
    (reading,) = result.readings
    assert reading.acceptance is not None
    assert reading.acceptance.accept_length == pytest.approx(2.5)
    assert "lines-inside-other-text" not in {finding.code for finding in result.findings}
