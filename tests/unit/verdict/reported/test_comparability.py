"""What makes two reported figures comparable: the same machine, alike requests, the better of several plain arms, one unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.errors import ReportedError
from breakeven.verdict.reported import judge_reported
from breakeven.verdict.result import Result

SPEC = "arm: spec, drafter: head, method: eagle3, draft_tokens: 3, accept_length: 2.50"


def judge(tmp_path: Path, *rows: str, engine: str = "vllm 0.11.0", top: str = "") -> Result:
    path = tmp_path / "table.yaml"
    listed = "".join(f"  - {{{row}}}\n" for row in rows)
    path.write_text(f"{top}defaults: {{engine: {engine}}}\nrows:\n{listed}", encoding="utf-8")
    return judge_reported(path)


def codes(result: Result) -> set[str]:
    return {finding.code for finding in result.findings}


def test_the_fastest_plain_arm_is_the_one_to_beat(tmp_path: Path) -> None:
    result = judge(
        tmp_path,
        "arm: eager, drafter: none, concurrency: 16, throughput_tok_s: 900",
        "arm: graphs, drafter: none, concurrency: 16, throughput_tok_s: 1500",
        f"{SPEC}, concurrency: 16, throughput_tok_s: 1300",
    )
    (pair,) = result.comparisons
    assert (pair.baseline, pair.outcome) == ("graphs", "slower")
    assert "no configuration pays" in result.headline
    assert "graphs" in result.decision


def test_each_load_has_its_own_fastest_plain_arm(tmp_path: Path) -> None:
    result = judge(
        tmp_path,
        "arm: one, drafter: none, points: [{concurrency: 1, throughput_tok_s: 100}, {concurrency: 8, throughput_tok_s: 500}]",
        "arm: two, drafter: none, points: [{concurrency: 1, throughput_tok_s: 80}, {concurrency: 8, throughput_tok_s: 700}]",
        f"{SPEC}, points: [{{concurrency: 1, throughput_tok_s: 150}}, {{concurrency: 8, throughput_tok_s: 600}}]",
    )
    assert {pair.load: pair.baseline for pair in result.comparisons} == {"c=1": "one", "c=8": "two"}


def test_replies_of_other_lengths_are_another_workload(tmp_path: Path) -> None:
    def at(tokens: int) -> Result:
        return judge(
            tmp_path,
            "arm: plain, drafter: none, concurrency: 16, throughput_tok_s: 1500, output_tokens: 256",
            f"{SPEC}, concurrency: 16, throughput_tok_s: 2400, output_tokens: {tokens}",
        )

    apart, alike = at(1024), at(260)
    assert apart.comparisons[0].outcome == "undecided"
    assert "replies of 1024 tokens against 256" in apart.headline
    assert "unequal-requests" in codes(apart)
    # their cost of a round would be of two workloads
    assert apart.break_even == ()
    assert alike.comparisons[0].outcome == "pays"
    assert "unequal-requests" not in codes(alike)


def test_other_hardware_is_no_baseline(tmp_path: Path) -> None:
    rows = ("arm: plain, drafter: none, hardware: 8xH100, concurrency: 1, throughput_tok_s: 100",)
    other = judge(tmp_path, *rows, f"{SPEC}, hardware: 8xH200, concurrency: 1, throughput_tok_s: 140")
    assert other.comparisons == ()
    assert "not on the same hardware" in other.decision
    assert any("8xH200 against 8xH100" in "".join(finding.evidence) for finding in other.findings)
    same = judge(tmp_path, *rows, f"{SPEC}, concurrency: 1, throughput_tok_s: 140", top="hardware: 8x h100\n")
    assert same.comparisons[0].outcome == "pays"


def test_throughput_and_the_speed_of_a_request_that_disagree_are_both_told(tmp_path: Path) -> None:
    result = judge(
        tmp_path,
        "arm: plain, drafter: none, concurrency: 32, throughput_tok_s: 3000, tpot_ms: 9.00",
        f"{SPEC}, concurrency: 32, throughput_tok_s: 2500, tpot_ms: 7.00",
    )
    assert "0.83x at c=32. That is throughput; by the speed of one request it is spec 1.29x" in result.headline
    assert "speeds-disagree" in codes(result)
    alike = judge(
        tmp_path,
        "arm: plain, drafter: none, concurrency: 32, throughput_tok_s: 3000, tpot_ms: 9.00",
        f"{SPEC}, concurrency: 32, throughput_tok_s: 2500, tpot_ms: 10.90",
    )
    assert "by the speed of one request" not in alike.headline
    assert "speeds-disagree" not in codes(alike)


def test_a_loaded_drafter_that_drafts_nothing_says_nothing_of_speculation(tmp_path: Path) -> None:
    plain = "arm: plain, drafter: none, concurrency: 8, throughput_tok_s: 1000"
    idle = "arm: idle, drafter: head, method: eagle3, draft_tokens: 0, concurrency: 8, throughput_tok_s: 850"
    alone = judge(tmp_path, plain, idle)
    assert "no arm was compared that drafts anything" in alone.headline
    assert "drafts-nothing" in codes(alone)
    assert not {"missing-draft-tokens", "missing-accept-length"} & codes(alone)
    beside = judge(tmp_path, plain, idle, f"{SPEC}, concurrency: 8, throughput_tok_s: 1300")
    assert "pays at c=8: best spec" in beside.headline
    # a base arm is often written with 0 drafts and stays one
    base = judge(
        tmp_path,
        "arm: base, draft_tokens: 0, concurrency: 8, throughput_tok_s: 1000",
        f"{SPEC}, concurrency: 8, throughput_tok_s: 1300",
    )
    assert base.comparisons[0].baseline == "base"


def test_loads_that_do_not_meet_are_named_as_the_next_measurement(tmp_path: Path) -> None:
    result = judge(
        tmp_path,
        "arm: plain, drafter: none, concurrency: 64, throughput_tok_s: 4000",
        f"{SPEC}, concurrency: 32, throughput_tok_s: 3600",
    )
    assert "run plain" not in result.decision
    assert "no two arms were reported at one load" in result.decision
    assert result.next_measurements[0].startswith("plain and spec at one and the same concurrency")


def test_a_length_below_one_is_said_to_leave_the_bonus_out(tmp_path: Path) -> None:
    rows = (
        "arm: plain, drafter: none, concurrency: 1, throughput_tok_s: 100",
        "arm: spec, drafter: head, method: eagle3, draft_tokens: 3, accept_length: 0.85, concurrency: 1, throughput_tok_s: 120",
    )
    unnamed = judge(tmp_path, *rows, engine="vllm")
    assert "accept-length-without-bonus" in codes(unnamed)
    assert any("length 0.85 without the bonus token, is accept length 1.85" in c.text for c in unnamed.conclusions)
    named = judge(tmp_path, *rows, engine="vllm 0.8.5")
    assert "accept-length-without-bonus" not in codes(named)
    assert any("without the bonus token, is accept length 1.85" in c.text for c in named.conclusions)


def test_a_rate_that_counts_unkept_drafts_gives_no_length(tmp_path: Path) -> None:
    rows = (
        "arm: plain, drafter: none, concurrency: 1, throughput_tok_s: 95",
        "arm: spec, drafter: head, method: eagle, draft_tokens: 4, accept_rate: 0.62, concurrency: 1, throughput_tok_s: 120",
    )
    old = judge(tmp_path, *rows, engine="vllm 0.6.3")
    assert "rate-counts-unkept-drafts" in codes(old)
    assert any("accept length at most 3.48" in c.text for c in old.conclusions)
    assert not any("cost" in c.text and "3.48" in c.text for c in old.conclusions)
    assert "rate-counts-unkept-drafts" not in codes(judge(tmp_path, *rows, engine="vllm 0.12.0"))


def test_a_winner_whose_figures_contradict_is_doubted_in_the_headline(tmp_path: Path) -> None:
    result = judge(
        tmp_path,
        "arm: plain, drafter: none, concurrency: 1, throughput_tok_s: 160",
        "arm: spec, drafter: head, method: eagle3, draft_tokens: 3, accept_length: 4.60, concurrency: 1, throughput_tok_s: 220",
    )
    assert "What spec printed cannot be right" in result.headline


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ("throughput_tok_s: 500 tok/s/GPU", "is for each GPU; give that of the whole server"),
        ("throughput_tok_s: 500 tok/s per gpu", "is for each GPU"),
        ("tpot_ms: 0.0042 s", "is in seconds; give milliseconds"),
        ("tpot_ms: 0.0042", "would be 238095 tokens/s of one request"),
        ("accept_rate: [0.7, 0.5, 0.35]", "1 plus their sum"),
        ("speedup: 160 %", "may be a ratio or a gain"),
        ('speedup: "-130 %"', "a loss of everything"),
    ],
)
def test_units_that_are_another_figure_are_refused_with_what_to_give(tmp_path: Path, figures: str, message: str) -> None:
    with pytest.raises(ReportedError, match=message):
        judge(tmp_path, f"arm: spec, drafter: head, concurrency: 1, {figures}")


def test_milliseconds_with_their_unit_are_no_seconds(tmp_path: Path) -> None:
    result = judge(
        tmp_path,
        "arm: plain, drafter: none, concurrency: 1, tpot_ms: 7.07 ms",
        f"{SPEC}, concurrency: 1, tpot_ms: 4.09ms",
    )
    assert result.comparisons[0].ratio.estimate == pytest.approx(7.07 / 4.09)


def test_speedups_alone_are_judged_where_equal_load_is_shown(tmp_path: Path) -> None:
    head = "arm: eagle, drafter: e, method: eagle3, steps: 5, topk: 1, draft_tokens: 6, accept_length: 4.20"
    points = "points: [{concurrency: 1, speedup: 3.42x}, {concurrency: 8, speedup: 0.80}, {concurrency: 64, speedup: '+39 %'}]"
    result = judge(tmp_path, f"{head}, {points}", engine="sglang 0.5.20")
    assert {pair.load: pair.outcome for pair in result.comparisons} == {"c=1": "pays", "c=8": "slower", "c=64": "undecided"}
    assert {pair.baseline for pair in result.comparisons} == {"plain decoding (not in the table)"}
    assert [point.cost_ratio.estimate for point in result.break_even] == pytest.approx([4.2 / 3.42, 4.2 / 0.8])
    # 48 requests run at most where the flag is not given, and a plain server has no such limit
    assert "Nothing follows from c=64" in result.headline
    assert not {"no-like-baseline", "missing-throughput-tok-s"} & codes(result)


def test_a_speedup_of_one_request_needs_no_engine(tmp_path: Path) -> None:
    result = judge(tmp_path, "arm: a, method: mtp, draft_tokens: 1, concurrency: 1, speedup: 1.5", engine="unknown")
    assert result.comparisons[0].outcome == "pays"


@pytest.mark.parametrize(("said", "outcome"), [("1.20", "undecided"), ("1.6", "pays"), ("1.58", "pays")])
def test_a_speedup_that_is_not_that_of_its_speeds_decides_nothing(tmp_path: Path, said: str, outcome: str) -> None:
    result = judge(
        tmp_path,
        "arm: plain, drafter: none, concurrency: 1, throughput_tok_s: 100",
        f"{SPEC}, concurrency: 1, throughput_tok_s: 160, speedup: {said}",
    )
    assert result.comparisons[0].outcome == outcome
    assert ("speedup-contradicts-speeds" in codes(result)) == (outcome == "undecided")
    assert ("reported speedup is not that of the speeds" in result.headline) == (outcome == "undecided")
