"""The five points that the Kimi-K2.5 report must lead to, from its figures and general rules; and that no rule knows it by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import breakeven
from breakeven.verdict.reported import judge_reported
from breakeven.verdict.result import Comparison, Result

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "kimi-k2.5-blackwell" / "reported.yaml"


@pytest.fixture(scope="module")
def result() -> Result:
    return judge_reported(EXAMPLE)


def words(result: Result) -> str:
    return "\n".join(conclusion.text for conclusion in result.conclusions)


def comparison(result: Result, arm: str, load: str) -> Comparison:
    return next(c for c in result.comparisons if c.arm == arm and c.load.startswith(load))


def test_no_interval_anywhere(result: Result) -> None:
    assert result.kind == "reported"
    assert all(c.ratio.low is None and c.ratio.high is None for c in result.comparisons)
    assert all(cell.throughput is None or cell.throughput.low is None for cell in result.cells)
    assert "no interval" in result.headline


def test_1_ranking_and_the_arm_to_run(result: Result) -> None:
    assert "SGLang base 2370, vLLM base 1536, SGLang + AQ-MedAI 849, SGLang + custom 597 tok/s" in result.conclusions[0].text
    assert "run SGLang base" in result.decision


def test_2_formula_floor_release_and_like_for_like(result: Result) -> None:
    text = words(result)
    assert "fits only length / (drafted + 1)" in text
    assert "0.5.6 to 0.5.10.post1 (or 0.5.3.post3 to 0.5.5)" in text
    assert "exists only from 0.5.10 on" in text
    assert "0.25 is the floor" in text
    assert "rate 0.42, is accept length 1.68, 23 % of drafted tokens, about 0.42 per position" in text
    assert "23 % against 15 % of drafted tokens accepted, accept length 1.68 against 1.45" in text
    lengths = {cell.arm: cell.acceptance.accept_length.estimate for cell in result.cells if cell.acceptance is not None}
    assert lengths == pytest.approx({"SGLang + AQ-MedAI": 1.68, "SGLang + custom": 1.00})


def test_3_unequal_admission_break_even_and_prediction(result: Result) -> None:
    for arm in ("SGLang + AQ-MedAI", "SGLang + custom"):
        at_peak = comparison(result, arm, "peak")
        assert at_peak.outcome == "undecided"
        assert "48" in at_peak.why
        assert "no limit" in at_peak.why
    assert "different admitted concurrency" in words(result)
    (point,) = result.break_even
    assert (point.load, round(point.cost_ratio.estimate, 2)) == ("c=1", 1.56)
    predicted = comparison(result, "SGLang + AQ-MedAI", "c=1")
    assert predicted.basis == "predicted"
    assert predicted.ratio.estimate == pytest.approx(1.08, abs=0.005)
    assert predicted.outcome == "undecided"
    assert "(+8 %) at c=1: a prediction, to be measured" in words(result)


def test_4_wiring_not_quantization_and_undecided(result: Result) -> None:
    finding = next(finding for finding in result.findings if finding.code == "accept-length-at-floor")
    order = ["algorithm flag", "tensors", "d2t", "auxiliary layer ids", "norm flags", "RoPE"]
    places = [finding.remedy.index(word) for word in order]
    assert places == sorted(places)
    assert "before training again" in finding.remedy
    assert any("0 to 3 %" in line for line in finding.evidence)
    assert any("2.7 to 3.3" in line for line in finding.evidence)
    assert "wiring fault, not of quantization" in words(result)
    assert result.headline.startswith("Undecided")


def test_5_next_measurements_cheapest_first(result: Result) -> None:
    static, again, forced = result.next_measurements
    assert "static check" in static
    assert "--max-running-requests" in again
    assert "forced acceptance" in forced


def test_what_the_limit_alone_cost_is_not_claimed(result: Result) -> None:
    assert "how much of the gap is the limit alone cannot be read" in words(result)


def test_rules_know_no_case_by_name() -> None:
    """Names and figures of a case, and the default limit of an engine, stand in rows of facts and nowhere else."""
    package = Path(breakeven.__file__).parent
    rules = [*package.glob("verdict/reported/*.py"), *package.glob("printed/*.py")]
    assert len(rules) > 15
    for path in rules:
        code = path.read_text(encoding="utf-8")
        assert not re.search(r"kimi|medai|blackwell|rtx", code, re.IGNORECASE), path
        assert not re.findall(r"(?<![\w.])(?:48|1\.56|63\.6|40\.8|2370|849|597)(?![\w.])", code), path
