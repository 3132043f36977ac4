"""How figures were measured: conditions of one arm only, several runs, positions, the bonus token, arms that accept alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breakeven.errors import ReportedError
from breakeven.verdict.reported.judge import judge_reported
from breakeven.verdict.result import Result


def judge(tmp_path: Path, plain: dict[str, Any], *arms: dict[str, Any], **defaults: Any) -> Result:
    path = tmp_path / "table.json"
    rows = [{"arm": "plain", "drafter": "none", **plain}, *({"arm": f"head{n}", **arm} for n, arm in enumerate(arms))]
    shared = {"engine": "vllm 0.20.2", "concurrency": 8, "method": "eagle3", "drafter": "head", "draft_tokens": 3, **defaults}
    rows[0]["method"] = "none"
    path.write_text(json.dumps({"defaults": shared, "rows": rows}), encoding="utf-8")
    return judge_reported(path)


def outcomes(result: Result) -> list[str]:
    return [str(one.outcome) for one in result.comparisons]


def codes(result: Result) -> set[str]:
    return {finding.code for finding in result.findings}


CONDITIONS: list[dict[str, Any]] = [
    {"temperature": "0.0"},
    {"prefix_caching": "off"},
    {"warm_up": "no"},
    {"statistic": "mean"},
    {"settings": {"chunked_prefill": "off"}},
]
OTHERS: list[dict[str, Any]] = [
    {"temperature": "1"},
    {"prefix_caching": "enabled"},
    {"warm_up": "yes"},
    {"statistic": "p50"},
    {"settings": {"chunked_prefill": "on"}},
]


@pytest.mark.parametrize(("here", "there"), list(zip(CONDITIONS, OTHERS, strict=True)), ids=lambda one: next(iter(one)))
def test_what_was_measured_otherwise_decides_nothing(tmp_path: Path, here: dict[str, Any], there: dict[str, Any]) -> None:
    speeds = {"throughput_tok_s": "900"}, {"throughput_tok_s": "1500", "accept_length": "2.50"}
    apart = judge(tmp_path, speeds[0] | here, speeds[1] | there)
    assert outcomes(apart) == ["undecided"]
    assert "under different conditions" in apart.headline
    assert "unequal-requests" in codes(apart)
    assert not apart.break_even, "a cost of two conditions is none of either"
    alike = judge(tmp_path, speeds[0] | here, speeds[1] | here)
    assert outcomes(alike) == ["pays"]
    half = judge(tmp_path, speeds[0], speeds[1] | here)
    assert outcomes(half) == ["pays"]
    assert "condition-of-one-arm" in codes(half)


def test_a_column_of_a_flat_table_is_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "arm,engine,drafter,concurrency,throughput_tok_s,settings.Chunked Prefill\n"
        "plain,vllm 0.20.2,none,8,900,off\nhead,vllm 0.20.2,h,8,1500,on\n"
    )
    result = judge_reported(path)
    assert outcomes(result) == ["undecided"]
    assert "chunked prefill on against off" in result.headline


def test_one_switch_in_two_spellings_is_one(tmp_path: Path) -> None:
    arms = {"throughput_tok_s": "900", "prefix_caching": "True"}, {"throughput_tok_s": "1500", "prefix_caching": "on"}
    assert outcomes(judge(tmp_path, *arms)) == ["pays"]
    arms = {"throughput_tok_s": "900", "temperature": "0.70"}, {"throughput_tok_s": "1500", "temperature": "0.7"}
    assert outcomes(judge(tmp_path, *arms)) == ["pays"]


def test_a_plain_arm_that_was_measured_alike_is_the_one_to_beat(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(
        "defaults: {engine: vllm 0.20.2, concurrency: 8}\nrows:\n"
        "- {arm: cold, drafter: none, prefix_caching: off, throughput_tok_s: 900}\n"
        "- {arm: cached, drafter: none, prefix_caching: on, throughput_tok_s: 1300}\n"
        "- {arm: head, drafter: h, method: eagle3, draft_tokens: 3, prefix_caching: off, throughput_tok_s: 1200}\n"
    )
    (pair,) = judge_reported(path).comparisons
    assert (pair.baseline, pair.outcome) == ("cold", "pays")


def test_a_wide_spread_of_runs_takes_an_outcome_away_and_a_narrow_one_gives_none(tmp_path: Path) -> None:
    plain = {"throughput_tok_s": [101, 97, 104]}
    wide = judge(tmp_path, plain, {"throughput_tok_s": [118, 95, 131], "accept_length": "2.05"})
    assert outcomes(wide) == ["undecided"]
    assert "runs-too-far-apart" in codes(wide)
    steady = judge(tmp_path, plain, {"throughput_tok_s": "150 / 148 / 155", "accept_length": "2.45"})
    assert outcomes(steady) == ["pays"]
    within_drift = judge(tmp_path, {"throughput_tok_s": [100, 100.1, 100.2]}, {"throughput_tok_s": [108, 108.1, 108.2]})
    assert outcomes(within_drift) == ["undecided"], "runs of one server do not show how launches differ"


def test_one_run_against_three_is_taken_to_spread_alike(tmp_path: Path) -> None:
    once = judge(tmp_path, {"throughput_tok_s": [80, 100, 120]}, {"throughput_tok_s": 125})
    assert outcomes(once) == ["undecided"]
    assert "3 runs" in next(one for one in once.findings if one.code == "runs-too-far-apart").evidence[0]


def test_positions_give_the_accept_length_and_have_to_agree_with_it(tmp_path: Path) -> None:
    plain = {"throughput_tok_s": "900"}
    shares = {"throughput_tok_s": "1500", "accept_by_position": ["0.73", "0.52", "0.35"]}
    alone = judge(tmp_path, plain, shares)
    assert alone.break_even[0].cost_ratio.estimate == pytest.approx(2.60 / (1500 / 900), abs=0.005)
    assert "positions-contradict-length" not in codes(judge(tmp_path, plain, shares | {"accept_length": "2.60"}))
    assert "positions-contradict-length" in codes(judge(tmp_path, plain, shares | {"accept_length": "2.10"}))
    assert "positions-contradict-length" in codes(judge(tmp_path, plain, shares, draft_tokens=5))


def test_conditional_shares_are_refused_where_they_show_themselves(tmp_path: Path) -> None:
    with pytest.raises(ReportedError, match=r"rises from 0.70 to 0.75"):
        judge(tmp_path, {"throughput_tok_s": "900"}, {"accept_by_position": "0.70, 0.75, 0.72"})


def test_a_length_of_a_release_without_the_bonus_may_be_somebodys_own(tmp_path: Path) -> None:
    speeds: tuple[dict[str, Any], dict[str, Any]] = (
        {"throughput_tok_s": "100"},
        {"throughput_tok_s": "140", "accept_length": "1.89"},
    )
    unsaid = judge(tmp_path, *speeds, engine="vllm 0.8.3", concurrency=1)
    assert not unsaid.break_even
    evidence = next(one for one in unsaid.findings if one.code == "accept-rate-ambiguous").evidence[0]
    assert "2.89" in evidence
    assert "1.89 if it counts" in evidence
    for said, length in (({"bonus": "included"}, 1.89), ({"bonus": "excluded"}, 2.89), ({"figures_from": "log"}, 2.89)):
        settled = judge(tmp_path, *speeds, engine="vllm 0.8.3", concurrency=1, **said)
        assert settled.break_even[0].cost_ratio.estimate == pytest.approx(length / 1.4, abs=0.005)
    # with a rate the pair decides: (1.89) / 3 = 63 %
    paired = judge(tmp_path, speeds[0], speeds[1] | {"accept_rate": "63 %"}, engine="vllm 0.8.3", concurrency=1)
    assert paired.break_even[0].cost_ratio.estimate == pytest.approx(2.89 / 1.4, abs=0.005)


def test_a_length_that_excludes_the_bonus_on_an_engine_that_includes_it(tmp_path: Path) -> None:
    arm = {"throughput_tok_s": "1500", "accept_length": "1.50", "bonus": "excluded"}
    result = judge(tmp_path, {"throughput_tok_s": "900"}, arm)
    assert result.break_even[0].cost_ratio.estimate == pytest.approx(2.5 / (1500 / 900), abs=0.005)


def test_what_the_table_says_of_the_bonus_is_the_reason_given(tmp_path: Path) -> None:
    arm = {"throughput_tok_s": "110", "accept_length": "1.6", "bonus": "excluded", "method": "medusa", "draft_tokens": 63}
    result = judge(tmp_path, {"throughput_tok_s": "60"}, arm, engine="tensorrt-llm", concurrency=1)
    (told,) = [one for one in result.conclusions if one.text.startswith("What the printed figures mean")]
    assert told.evidence == ("head0: as the table says (bonus: excluded)",)
    assert "per position in a chain" not in told.text


@pytest.mark.parametrize(
    ("drafts", "length", "is_odd"), [(3, "3.99", True), (3, "3.70", False), (1, "1.98", False), (7, "7.95", True)]
)
def test_nearly_every_draft_of_several_accepted_is_no_text_of_anybody(
    tmp_path: Path, drafts: int, length: str, is_odd: bool
) -> None:
    arm = {"throughput_tok_s": "160", "accept_length": length}
    result = judge(tmp_path, {"throughput_tok_s": "50"}, arm, draft_tokens=drafts, concurrency=1)
    assert ("accept-length-at-ceiling" in codes(result)) == is_odd
    assert ("accepted every draft" in result.headline) == (is_odd and result.comparisons[0].outcome == "pays")


@pytest.mark.parametrize(("tpot_ms", "is_odd"), [("159.6", True), ("27.48", False), ("33", False)])
def test_a_time_between_chunks_is_no_time_a_token(tmp_path: Path, tpot_ms: str, is_odd: bool) -> None:
    plain = {"throughput_tok_s": "1646", "tpot_ms": "37.18"}
    arm = {"throughput_tok_s": "2148", "tpot_ms": tpot_ms, "accept_length": "4.40", "draft_tokens": 8}
    assert ("more-than-its-requests" in codes(judge(tmp_path, plain, arm, concurrency=64))) == is_odd


def test_arms_that_draft_alike_accept_alike(tmp_path: Path) -> None:
    lengths = ("2.3377", "0.7795"), ("1.4931", "0.4976")
    arms = [{"accept_length": length, "accept_rate": rate} for length, rate in lengths]
    shape = {"engine": "sglang", "method": "mtp", "steps": 2, "topk": 1, "draft_tokens": 3, "workload": "longbench"}
    told = [one for one in judge(tmp_path, {}, *arms, **shape).findings if one.code == "accept-lengths-differ"]
    assert len(told) == 1
    assert "accept 1.49 against 2.34" in told[0].title
    noise = [{"accept_length": "2.49"}, {"accept_length": "2.52"}]
    assert "accept-lengths-differ" not in codes(judge(tmp_path, {}, *noise, **shape))
    other_prompts = [arms[0] | {"workload": "a"}, arms[1] | {"workload": "b"}]
    assert "accept-lengths-differ" not in codes(judge(tmp_path, {}, *other_prompts, **shape))
    other_heads = [arms[0] | {"drafter": "a"}, arms[1] | {"drafter": "b"}]
    assert "accept-lengths-differ" not in codes(judge(tmp_path, {}, *other_heads, **shape))


def test_arms_within_the_drift_of_the_fastest_are_named(tmp_path: Path) -> None:
    result = judge(tmp_path, {"throughput_tok_s": "61.7"}, {"throughput_tok_s": "119"}, {"throughput_tok_s": "121"})
    (ranking,) = [one.text for one in result.conclusions if one.text.startswith("As reported, fastest first")]
    assert "head0 within the 10 %" in ranking
    assert "plain within" not in ranking


@pytest.mark.parametrize(
    ("key", "why"),
    [("itl_ms", "give tpot_ms"), ("goodput", "objective: goodput"), ("request_throughput", "times output tokens"),
     ("p99_ttft_ms", "first token"), ("position_0", "accept_by_position")],
)  # fmt: skip
def test_figures_that_say_something_else_are_refused_with_what_to_give(tmp_path: Path, key: str, why: str) -> None:
    with pytest.raises(ReportedError, match=why):
        judge(tmp_path, {key: "5"}, {"throughput_tok_s": "100"})
