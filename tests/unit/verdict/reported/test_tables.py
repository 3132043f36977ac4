"""Whole tables with the conclusions they must lead to: two public cases, and six made up with other names and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.verdict.reported import judge_reported
from breakeven.verdict.result import Result

TABLES = Path(__file__).parent / "tables"


def judged(name: str) -> Result:
    return judge_reported(TABLES / name)


def words(result: Result) -> str:
    return "\n".join(conclusion.text for conclusion in result.conclusions)


def outcomes(result: Result) -> dict[tuple[str, str], str]:
    return {(c.arm, c.load): c.outcome for c in result.comparisons}


def costs(result: Result) -> dict[str, float]:
    return {f"{point.method} {point.load}": round(point.cost_ratio.estimate, 2) for point in result.break_even}


def codes(result: Result) -> set[str]:
    return {finding.code for finding in result.findings}


def test_losing_moe() -> None:
    result = judged("losing-moe.csv")
    assert result.headline.startswith("As reported, no configuration pays: the best is 3-3-4, 0.93x at c=1.")
    assert "pays" not in outcomes(result).values()
    assert costs(result) == {
        "eagle3 3-1-4 c=1": 2.59,
        "eagle3 3-3-8 c=1": 2.83,
        "eagle3 3-3-4 c=1": 2.13,
        "eagle3 7-4-16 c=1": 2.92,
        "eagle3 6-4-12 c=1": 3.14,
        "eagle3 8-8-60 c=1": 4.01,
        "eagle3 3-1-4 c=4": 2.35,
        "eagle3 3-3-8 c=4": 3.01,
    }
    assert "3-1-4 at c=1 2.59 (3-1-4 has 1.86)" in words(result)
    assert "More steps or a wider tree do not help" in words(result)
    assert "cost rises about as fast" in words(result)
    assert "hardly grows beyond concurrency 16 to 32" in words(result)
    assert result.decision == "Run plain decoding (base)."
    assert not any("topk" in step or "wider" in step for step in result.next_measurements)


def test_same_rate_means_two_things_in_two_releases() -> None:
    result = judged("same-rate-two-releases.yaml")
    assert outcomes(result) == {("old", "c=8"): "slower", ("new", "c=8"): "pays"}
    assert {c.arm: round(c.ratio.estimate, 2) for c in result.comparisons} == {"old": 0.86, "new": 1.16}
    assert all(c.basis == "predicted" for c in result.comparisons)
    assert "old 0.86x at c=8 (slower, do not use it) and new 1.16x at c=8 (pays)" in result.headline


def test_rate_alone_gives_both_and_asks() -> None:
    result = judged("rate-alone.yaml")
    assert not result.comparisons
    assert result.headline.startswith("Undecided")
    assert "1.16x or 0.86x" in result.headline
    assert "accept length 2.26 and 1.16x: pays" in words(result)
    assert "accept length 1.68 and 0.86x: slower" in words(result)
    assert "version or accept_length" in words(result)
    assert result.next_measurements[0].startswith("Nothing to run")


def test_best_number_of_drafts_at_one_request() -> None:
    result = judged("drafts-at-one-request.yaml")
    eagle3 = [round(point.cost_ratio.estimate, 2) for point in result.break_even if point.method == "eagle3"]
    assert eagle3 == [1.44, 1.61, 1.76, 1.94, 2.06, 2.15]
    assert "EAGLE-3 at c=1: the best of 6 shapes is k=4, 1.75x; k=3 and k=5 within 3 % of it." in words(result)
    assert "EAGLE-1 at c=1: the best of 6 shapes is k=3, 1.65x" in words(result)
    assert "EAGLE-3 at c=1: a draft more adds about 1.0 ms to a round." in words(result)
    rounds_ms = [1000 * cell.round_s for cell in result.cells if cell.round_s is not None and "EAGLE-3" in cell.arm]
    assert [round(ms, 1) for ms in rounds_ms] == [10.2, 11.4, 12.5, 13.7, 14.5, 15.2]


def test_healthy_drafter() -> None:
    result = judged("healthy-drafter.yaml")
    assert set(outcomes(result).values()) == {"pays"}
    assert costs(result) == {"eagle3 3-1-4 c=1": 1.34, "eagle3 3-1-4 c=8": 1.59, "eagle3 3-1-4 c=32": 2.16}
    assert result.decision == "Run heron-head at c=1, c=8 and c=32."
    assert "no interval" in result.headline
    assert not {finding.severity for finding in result.findings} & {"error", "warning"}


def test_capped_arm() -> None:
    result = judged("capped-arm.csv")
    assert outcomes(result) == {("Osprey drafted", "c=16"): "pays", ("Osprey drafted", "c=256"): "undecided"}
    finding = next(finding for finding in result.findings if finding.code == "unequal-admission")
    assert finding.severity == "error"
    assert "48" in finding.evidence[0]
    assert "Nothing follows from c=256" in result.headline
    assert [(cell.arm, cell.num_running) for cell in result.cells if cell.load == "c=256"] == [
        ("Osprey plain", 256),
        ("Osprey drafted", 48),
    ]
    assert [point.load for point in result.break_even] == ["c=16"]


def test_new_formula_log() -> None:
    result = judged("new-formula.yaml")
    assert "fits only (length - 1) / drafted, so this SGLang is 0.5.11 and later" in words(result)
    assert "the floor of the scale" not in words(result)
    assert "head B, rate 0.31, is accept length 2.55, 31 % of drafted tokens" in words(result)
    assert "accept-length-at-floor" in codes(result)
    assert result.headline.startswith("Undecided")
    predicted = next(c for c in result.comparisons if c.arm == "head B")
    assert predicted.basis == "predicted"
    assert predicted.ratio.estimate == pytest.approx(2.55 / (55.0 / 37.4))


def test_impossible_baseline() -> None:
    result = judged("impossible-baseline.yaml")
    assert outcomes(result) == {("after", "c=4"): "undecided"}
    finding = next(finding for finding in result.findings if finding.code == "impossible-cost-ratio")
    assert "0.83" in finding.evidence[0]
    assert not result.break_even
    assert "measure the baseline again" in result.decision
    assert "baseline again (before)" in result.next_measurements[0]


def test_tree_drafter() -> None:
    result = judged("tree-drafter.yaml")
    assert costs(result) == {"eagle 6-8-32 c=1": 1.86}
    assert outcomes(result) == {("tree", "c=1"): "pays"}
    assert "8 % of the tree's nodes (not an acceptance per position)" in words(result)
    assert "per position in a chain" not in words(result)


def test_missing_fields() -> None:
    result = judged("missing-fields.csv")
    assert outcomes(result) == {("sglang mystery-head", "peak (concurrency not reported)"): "undecided"}
    assert result.headline.startswith("Undecided")
    asked = {code for code in codes(result) if code.startswith("missing-")}
    fields = ("draft-tokens", "accept-length", "version", "concurrency", "max-running-requests", "single-stream-tok-s")
    assert asked >= {f"missing-{field}" for field in fields}
    assert all(finding.remedy.startswith("Report ") for finding in result.findings if finding.code in asked)
    admission = next(finding for finding in result.findings if finding.code == "unequal-admission")
    assert (admission.severity, admission.confidence) == ("warning", "medium")
    assert not result.break_even
