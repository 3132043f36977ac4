"""Each rule on the smallest table that shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.findings import Finding
from breakeven.verdict.reported import judge_table
from breakeven.verdict.reported.files import load_table
from breakeven.verdict.result import Result

Judge = Callable[..., Result]
HEAD = "drafter: h, method: eagle3, steps: 3, topk: 1, draft_tokens: 4"


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judged(*rows: str, defaults: str = "{engine: sglang}", target: str = "{}") -> Result:
        path = tmp_path / "table.yaml"
        lines = "".join(f"  - {{{row}}}\n" for row in rows)
        path.write_text(f"target: {target}\ndefaults: {defaults}\nrows:\n{lines}", encoding="utf-8")
        return judge_table(load_table(path))

    return judged


def finding(result: Result, code: str) -> Finding:
    return next(finding for finding in result.findings if finding.code == code)


def has(result: Result, code: str) -> bool:
    return any(finding.code == code for finding in result.findings)


def words(result: Result) -> str:
    return "\n".join(conclusion.text for conclusion in result.conclusions)


@pytest.mark.parametrize(
    ("speed", "outcome", "drift"),
    [
        (134, "pays", "30 %"),
        (115, "pays", "10 %"),
        (109, "undecided", "10 %"),
        (100, "undecided", "10 %"),
        (92, "undecided", "10 %"),
        (88, "slower", "10 %"),
        (70, "slower", "30 %"),
    ],
)
def test_outcome_needs_more_than_the_drift_between_launches(judge: Judge, speed: int, outcome: str, drift: str) -> None:
    result = judge("arm: base, concurrency: 8, throughput_tok_s: 100", f"arm: s, {HEAD}, concurrency: 8, throughput_tok_s: {speed}")
    (comparison,) = result.comparisons
    assert comparison.outcome == outcome
    assert drift in comparison.why
    assert "no interval" in comparison.why


@pytest.mark.parametrize(
    ("engine", "concurrency", "base_cap", "cap", "outcome"),
    [
        ("sglang", "32", "none", "default", "pays"),
        ("sglang", "64", "none", "default", "undecided"),
        ("sglang", "64", "64", "64", "pays"),
        ("sglang", "64", "64", "32", "undecided"),
        ("sglang", "64", "", "", "undecided"),
        ("sglang", "48", "", "", "pays"),
        ("sglang 0.4.3", "40", "none", "default", "undecided"),
        ("vllm", "512", "", "", "pays"),
        ("vllm", "512", "", "256", "undecided"),
        ("sglang", "", "64", "64", "undecided"),
    ],
)
def test_admission(judge: Judge, engine: str, concurrency: str, base_cap: str, cap: str, outcome: str) -> None:
    point = f"concurrency: '{concurrency}', throughput_tok_s"
    result = judge(
        f"arm: base, {point}: 100, max_running_requests: '{base_cap}'",
        f"arm: s, {HEAD}, {point}: 150, max_running_requests: '{cap}'",
        defaults=f"{{engine: {engine}}}",
    )
    (comparison,) = result.comparisons
    assert comparison.outcome == outcome


def test_default_limit_of_a_release_never_checked_is_called_unverified(judge: Judge) -> None:
    result = judge(
        "arm: base, peak_tok_s: 100, max_running_requests: none",
        f"arm: s, {HEAD}, peak_tok_s: 50, max_running_requests: default",
        defaults="{engine: sglang, version: 0.9.1}",
    )
    assert "unverified in 0.9.1" in finding(result, "unequal-admission").evidence[0]


def test_impossible_baseline_taints_the_other_arms_at_that_load(judge: Judge) -> None:
    result = judge(
        "arm: base, points: [{concurrency: 1, throughput_tok_s: 50}, {concurrency: 4, throughput_tok_s: 400}]",
        f"arm: too good, {HEAD}, accept_length: 2.00, concurrency: 1, throughput_tok_s: 140",
        f"arm: other, {HEAD}, accept_length: 3.00, points: "
        "[{concurrency: 1, throughput_tok_s: 120}, {concurrency: 4, throughput_tok_s: 600}]",
    )
    assert [(c.arm, c.load, c.outcome) for c in result.comparisons if c.basis == "reported"] == [
        ("too good", "c=1", "undecided"),
        ("other", "c=1", "undecided"),
        ("other", "c=4", "pays"),
    ]
    assert "too good shows that base cannot be right" in result.comparisons[1].why
    assert [point.load for point in result.break_even] == ["c=4"]


def test_speedup_beyond_the_longest_possible_accept_length(judge: Judge) -> None:
    result = judge("arm: base, single_stream_tok_s: 20", f"arm: s, {HEAD}, single_stream_tok_s: 100")
    assert has(result, "impossible-cost-ratio")


def test_rounding_of_the_length_is_allowed_for(judge: Judge) -> None:
    result = judge("arm: base, single_stream_tok_s: 100", f"arm: s, {HEAD}, accept_length: 1.9, single_stream_tok_s: 198")
    assert not has(result, "impossible-cost-ratio")


def test_reported_cost_ratio_upside_down_is_not_used(judge: Judge) -> None:
    result = judge(f"arm: s, {HEAD}, accept_length: 2.50, concurrency: 8, cost_ratio: 0.55")
    assert has(result, "impossible-cost-ratio")
    assert not result.comparisons
    assert not result.break_even


def test_prediction_needs_the_same_known_shape(judge: Judge) -> None:
    rows = (
        "arm: base, single_stream_tok_s: 100",
        f"arm: a, {HEAD}, accept_length: 1.50, single_stream_tok_s: 90",
        f"arm: b, {HEAD}, accept_length: 2.50, peak_tok_s: 900",
        "arm: c, drafter: h, method: eagle3, steps: 5, topk: 1, draft_tokens: 6, accept_length: 2.90, peak_tok_s: 900",
        "arm: d, drafter: h, method: mtp, steps: 3, topk: 1, draft_tokens: 4, accept_length: 2.90, peak_tok_s: 900",
    )
    predicted = {c.arm: c.ratio.estimate for c in judge(*rows).comparisons if c.basis == "predicted"}
    assert predicted == {"b": pytest.approx(2.5 / (1.5 / 0.9))}


def test_no_prediction_between_arms_of_unknown_shape(judge: Judge) -> None:
    result = judge(
        "arm: base, single_stream_tok_s: 100",
        "arm: a, drafter: a, method: eagle3, accept_length: 1.50, single_stream_tok_s: 90",
        "arm: b, drafter: b, method: eagle3, accept_length: 2.50, peak_tok_s: 900",
    )
    assert len(result.break_even) == 1
    assert not [c for c in result.comparisons if c.basis == "predicted"]


def test_release_of_one_arm_settles_another_and_says_so(judge: Judge) -> None:
    pair = f"arm: pair, {HEAD}, accept_length: 2.26, accept_rate: 0.42"
    alone = f"arm: alone, {HEAD}, accept_rate: 0.60"
    assert has(judge(alone), "accept-rate-ambiguous")
    result = judge(pair, alone)
    assert "alone, rate 0.60, is accept length 2.80" in words(result)
    assert any("taken to be the same release as pair" in line for conclusion in result.conclusions for line in conclusion.evidence)


def test_an_arm_with_its_own_release_is_not_settled_by_another(judge: Judge) -> None:
    result = judge(
        f"arm: pair, {HEAD}, accept_length: 2.26, accept_rate: 0.42", f"arm: own, {HEAD}, accept_rate: 0.60, version: 0.5.9"
    )
    assert "own, rate 0.60, is accept length 2.40" in words(result)


def test_an_arm_of_a_release_never_read_is_not_settled_by_another(judge: Judge) -> None:
    result = judge(
        "arm: pair, drafter: h, method: eagle3, draft_tokens: 3, accept_length: 2.20, accept_rate: 40 %",
        "arm: between, drafter: h, method: eagle3, draft_tokens: 3, accept_length: 1.45, version: 0.9.0",
        defaults="{engine: vllm}",
    )
    assert "between" in finding(result, "accept-rate-ambiguous").title
    assert "so this vLLM is" not in words(result)  # its rate never changed, so the pair tells no release


def test_arms_that_clash_settle_nothing(judge: Judge) -> None:
    result = judge(
        f"arm: old, {HEAD}, accept_length: 1.68, accept_rate: 0.42",
        f"arm: new, {HEAD}, accept_length: 2.26, accept_rate: 0.42",
        f"arm: alone, {HEAD}, accept_rate: 0.60",
    )
    assert has(result, "arms-of-different-releases")
    assert has(result, "accept-rate-ambiguous")


def test_contradiction_is_a_finding_and_its_length_is_not_used(judge: Judge) -> None:
    result = judge(
        "arm: base, single_stream_tok_s: 100",
        f"arm: s, {HEAD}, version: 0.5.14, accept_length: 1.00, accept_rate: 0.25, single_stream_tok_s: 70",
    )
    assert "here 0.00" in finding(result, "printed-figures-contradict").evidence[0]
    assert not result.break_even


def test_length_without_decimals_is_not_computed_with(judge: Judge) -> None:
    result = judge("arm: base, single_stream_tok_s: 100", f"arm: s, {HEAD}, accept_length: 1, single_stream_tok_s: 70")
    assert has(result, "accept-length-without-decimals")
    assert not has(result, "accept-length-at-floor")
    assert not result.break_even


@pytest.mark.parametrize(
    ("figures", "code"),
    [
        ("accept_length: 1.00", "accept-length-at-floor"),
        ("accept_length: 1, accept_rate: 0.25", "accept-length-at-floor"),
        ("version: 0.5.14, accept_rate: 0.00", "accept-length-at-floor"),
        ("version: 0.5.9, accept_rate: 25 %", "accept-length-at-floor"),
        ("version: 0.5.9, accept_rate: 26 %", "accept-length-near-floor"),
        ("accept_length: 1.04", "accept-length-near-floor"),
        ("accept_length: 1.30", None),
        ("accept_length: 4.00", "accept-length-at-ceiling"),
    ],
)
def test_ends_of_the_scale(judge: Judge, figures: str, code: str | None) -> None:
    result = judge(f"arm: s, {HEAD}, {figures}")
    ends = {finding.code for finding in result.findings if finding.code.startswith("accept-length-")}
    assert ends == ({code} if code else set())


def test_floor_of_ngram_is_not_called_wiring(judge: Judge) -> None:
    result = judge("arm: n, method: n-gram, draft_tokens: 4, accept_length: 1.00")
    assert "training" not in finding(result, "accept-length-at-floor").remedy
    assert "wiring" not in words(result)


def test_ngram_counted_by_rounds_is_an_upper_bound(judge: Judge) -> None:
    base = "arm: base, single_stream_tok_s: 90"
    row = "arm: n, method: ngram, draft_tokens: 5, accept_length: 3.40, single_stream_tok_s: 112"
    bound = judge(base, row, defaults="{engine: vllm}")
    assert has(bound, "counts-only-drafted-steps")
    assert not bound.break_even
    share = judge(base, f"{row}, drafted_share: 0.30", defaults="{engine: vllm}")
    assert not has(share, "counts-only-drafted-steps")
    assert share.break_even[0].cost_ratio.estimate == pytest.approx(1.72 / (112 / 90))


@pytest.mark.parametrize(
    ("difference", "reason"),
    [("tensor_parallel: 8", "tensor parallel (8 against 4)"), ("quantization: fp8", "quantization"), ("version: 0.5.9", "release")],
)
def test_unlike_baseline_is_no_baseline(judge: Judge, difference: str, reason: str) -> None:
    result = judge(
        "arm: base, concurrency: 1, throughput_tok_s: 100, tensor_parallel: 4, quantization: int4, version: 0.5.14",
        f"arm: s, {HEAD}, concurrency: 1, throughput_tok_s: 150, {difference}",
    )
    assert not result.comparisons
    assert reason in finding(result, "no-like-baseline").evidence[0]


def test_engines_are_not_compared_with_each_other(judge: Judge) -> None:
    result = judge(
        "arm: base, engine: vllm, concurrency: 1, throughput_tok_s: 100",
        f"arm: s, {HEAD}, concurrency: 1, throughput_tok_s: 150",
    )
    assert not result.comparisons
    assert "no plain arm on sglang" in finding(result, "no-like-baseline").evidence[0]


def test_only_equal_workloads_are_compared(judge: Judge) -> None:
    result = judge(
        "arm: base, concurrency: 8, workload: chat, throughput_tok_s: 100",
        f"arm: s, {HEAD}, points: "
        "[{concurrency: 8, workload: chat, throughput_tok_s: 150}, {concurrency: 8, workload: maths, throughput_tok_s: 190}]",
    )
    assert [c.load for c in result.comparisons] == ["c=8 (chat)"]


def test_accept_length_must_not_depend_on_load(judge: Judge) -> None:
    def at(low: float) -> Result:
        return judge(
            f"arm: s, {HEAD}, points: [{{concurrency: 2, accept_length: 2.41}}, {{concurrency: 32, accept_length: {low}}}]"
        )

    assert has(at(2.27), "accept-length-changes-with-load")
    assert not has(at(2.38), "accept-length-changes-with-load")


def test_same_shape_should_cost_the_same(judge: Judge) -> None:
    result = judge(
        "arm: base, single_stream_tok_s: 100",
        "arm: a, drafter: a, method: eagle3, steps: 3, topk: 1, draft_tokens: 4, accept_length: 2.00, single_stream_tok_s: 140",
        "arm: b, drafter: b, method: eagle3, steps: 3, topk: 1, draft_tokens: 4, accept_length: 2.80, single_stream_tok_s: 120",
    )
    assert "1.43" in finding(result, "cost-ratios-disagree").evidence[0]


def test_explicit_none_is_plain_whatever_the_defaults_say(judge: Judge) -> None:
    result = judge(
        "arm: base, drafter: none, concurrency: 1, throughput_tok_s: 100",
        "arm: s, drafter: h, accept_length: 2.00, concurrency: 1, throughput_tok_s: 150",
        defaults="{engine: sglang, method: eagle3, steps: 3, topk: 1, draft_tokens: 4}",
    )
    assert [arm.method for arm in result.arms] == ["plain", "eagle3 3-1-4"]
    assert len(result.comparisons) == 1


def test_break_even_points_belong_to_one_arm_each_where_shapes_are_shared(judge: Judge) -> None:
    result = judge(
        "arm: base, single_stream_tok_s: 100",
        "arm: a, drafter: a, method: eagle3, draft_tokens: 3, accept_length: 2.71, single_stream_tok_s: 180",
        "arm: b, drafter: b, method: eagle3, draft_tokens: 3, accept_length: 1.52, single_stream_tok_s: 97",
        defaults="{engine: vllm}",
    )
    arms = {(arm.method, arm.num_draft_tokens): arm.name for arm in result.arms}
    costs = {arms[point.method, point.num_draft_tokens]: round(point.cost_ratio.estimate, 2) for point in result.break_even}
    assert costs == {"a": 1.51, "b": 1.57}


def test_pays_here_and_slower_there(judge: Judge) -> None:
    result = judge(
        "arm: base, points: [{concurrency: 1, throughput_tok_s: 100}, {concurrency: 32, throughput_tok_s: 900}]",
        f"arm: s, {HEAD}, points: [{{concurrency: 1, throughput_tok_s: 160}}, {{concurrency: 32, throughput_tok_s: 600}}]",
    )
    assert result.decision == "Run s at c=1, and base at c=32."
    assert "slower at c=32" in result.headline


def test_a_dead_drafter_is_never_the_arm_to_run(judge: Judge) -> None:
    result = judge(
        f"arm: s, {HEAD}, accept_length: 1.00, single_stream_tok_s: 70", "arm: base, engine: vllm, single_stream_tok_s: 60"
    )
    assert "run it without" in result.decision
    assert "one to run" not in words(result)


def test_no_arm_speculates(judge: Judge) -> None:
    result = judge("arm: a, peak_tok_s: 100", "arm: b, engine: vllm, peak_tok_s: 90")
    assert result.headline.startswith("No arm speculates")
    assert "run a" in result.decision


def test_hundreds_of_rows_are_judged_quickly_and_told_shortly(judge: Judge) -> None:
    rows = [f"arm: base, concurrency: {c}, throughput_tok_s: {100 * c}" for c in range(1, 33)]
    rows += [
        f"arm: s{n}, {HEAD.replace('h,', f'h{n},', 1)}, accept_length: 2.40, concurrency: {c}, throughput_tok_s: {120 * c + n}"
        for n in range(9)
        for c in range(1, 33)
    ]
    started = time.perf_counter()
    result = judge(*rows)
    assert time.perf_counter() - started < 10.0
    assert len(result.comparisons) == 288
    assert max(len(conclusion.text) for conclusion in result.conclusions) < 1200
    assert len(result.conclusions) < 40
    assert len(result.headline) < 400


def test_the_fastest_arm_is_not_chosen_where_its_lead_is_undecided(judge: Judge) -> None:
    rows = ("arm: base, concurrency: 16, throughput_tok_s: 720", f"arm: s, {HEAD}, concurrency: 16, throughput_tok_s: 741")
    assert "does not show that s is faster than base: 1.03x is undecided" in words(judge(*rows))
    decided = judge(rows[0], f"arm: s, {HEAD}, concurrency: 16, throughput_tok_s: 1041")
    assert "s is the one to run there" in words(decided)


def test_a_missing_speed_is_named(judge: Judge) -> None:
    rows = ("arm: base, concurrency: 8, tpot_ms: 15", f"arm: s, {HEAD}, accept_length: 2.40")
    assert "(s)" in finding(judge(*rows, f"arm: s, {HEAD}, concurrency: 8"), "missing-throughput-tok-s").title
    assert not has(judge(*rows, f"arm: s, {HEAD}, concurrency: 8, tpot_ms: 9"), "missing-throughput-tok-s")


def test_speeds_worked_out_from_times_have_no_invented_digits(judge: Judge) -> None:
    result = judge("arm: base, concurrency: 8, tpot_ms: 12.5", f"arm: s, {HEAD}, concurrency: 8, tpot_ms: 7.1")
    assert "s 140.8, base 80 tok/s a request" in words(result)


def test_a_pair_that_fits_only_with_an_allowance_says_so(judge: Judge) -> None:
    row = "arm: s, method: mtp, draft_tokens: 3, accept_length: 2.4, accept_rate:"
    assert "and that only if a last digit was cut off instead of rounded" in words(judge(f"{row} 0.6"))
    assert "and that only if" not in words(judge(f"{row} 0.70"))


def test_drafts_a_round_leave_out_the_root_that_a_flag_counts(judge: Judge) -> None:
    result = judge(
        "arm: base, concurrency: 1, throughput_tok_s: 80",
        "arm: s, method: mtp, draft_tokens: 3, accept_length: 2.40, concurrency: 1, throughput_tok_s: 141",
    )
    assert "a round of mtp k=2 costs" in words(result)


def two_loads(base: tuple[int, int], arm: tuple[int, int]) -> list[str]:
    return [
        f"points: [{{concurrency: 1, throughput_tok_s: {a}}}, {{concurrency: 8, throughput_tok_s: {b}}}]" for a, b in (base, arm)
    ]


def test_arms_of_an_engine_that_is_not_named_are_not_shown_to_be_comparable(judge: Judge) -> None:
    result = judge(
        "arm: A, concurrency: 1, throughput_tok_s: 90", "arm: B, drafter: h, concurrency: 1, throughput_tok_s: 150", defaults="{}"
    )
    assert [c.outcome for c in result.comparisons] == ["undecided"]
    assert "the engine was not reported" in words(result)
    assert has(result, "missing-engine")


@pytest.mark.parametrize(("cap", "outcomes"), [("", ["pays", "undecided"]), ("64", ["pays", "pays"])])
def test_a_default_limit_that_is_not_on_record_is_not_taken_for_equal_admission(
    judge: Judge, cap: str, outcomes: list[str]
) -> None:
    base, arm = two_loads((90, 400), (150, 700))
    result = judge(
        f"arm: base, {base}", f"arm: s, drafter: h, {arm}", defaults=f"{{engine: trtllm, max_running_requests: '{cap}'}}"
    )
    assert [c.outcome for c in result.comparisons] == outcomes


def test_next_to_nothing_accepted_decides_nothing(judge: Judge) -> None:
    rows = ("arm: base, single_stream_tok_s: 90", "single_stream_tok_s: 55, draft_tokens: 5, accept_length: 1.04")
    head = judge(rows[0], f"arm: s, drafter: h, method: eagle3, {rows[1]}", defaults="{engine: vllm}")
    assert head.headline.startswith("Undecided whether speculation pays: next to nothing was accepted by s (accept length 1.04)")
    matches = judge(rows[0], f"arm: s, method: ngram, drafted_share: 1, {rows[1]}", defaults="{engine: vllm}")
    assert matches.headline.startswith("As reported, no configuration pays")


def test_slower_with_unknown_acceptance_leaves_a_broken_drafter_open(judge: Judge) -> None:
    rows = ("arm: base, single_stream_tok_s: 100", f"arm: s, {HEAD}, single_stream_tok_s: 70")
    assert "a drafter that is wired wrongly is not ruled out" in judge(*rows).headline
    assert "not ruled out" not in judge(rows[0], f"{rows[1]}, accept_length: 2.10").headline


def test_two_engines_are_told_apart_and_the_fastest_is_run(judge: Judge) -> None:
    rows = (
        "arm: vb, engine: vllm, concurrency: 8, throughput_tok_s: 900",
        "arm: vs, engine: vllm, drafter: h, concurrency: 8, throughput_tok_s: 1170",
        f"arm: ss, {HEAD}, concurrency: 8, throughput_tok_s: 1230",
    )
    result = judge(*rows, "arm: sb, concurrency: 8, throughput_tok_s: 1400")
    assert "pays on vLLM at c=8" in result.headline
    assert "slower on SGLang at c=8" in result.headline
    assert result.decision == "Run sb at c=8, the fastest measured there (vs if it has to be vLLM)."
    elsewhere = judge(
        *rows,
        "arm: sb, concurrency: 8, throughput_tok_s: 1400, tensor_parallel: 8",
        defaults="{engine: sglang, tensor_parallel: 4}",
    )
    assert elsewhere.decision.startswith("Run vs at c=8")


def test_more_gpus_are_not_a_faster_arm(judge: Judge) -> None:
    result = judge(
        "arm: base8, concurrency: 16, throughput_tok_s: 1600, tensor_parallel: 8",
        f"arm: spec4, {HEAD}, concurrency: 16, throughput_tok_s: 1500, tensor_parallel: 4",
    )
    assert "not on as many GPUs" in result.decision
    assert "spec4 375, base8 200 tok/s" in words(result)
    assert "no plain arm is like spec4" in result.headline
    assert result.next_measurements[0].startswith("Plain decoding beside spec4")


def test_one_request_at_a_time_says_nothing_about_load(judge: Judge) -> None:
    rows = ("arm: base, single_stream_tok_s: 100", f"arm: s, {HEAD}, accept_length: 2.50, single_stream_tok_s: 180")
    result = judge(*rows)
    assert result.decision == "Run s at c=1; of more than one request at a time the table says nothing."
    assert result.next_measurements[0].startswith("The same arms at the concurrencies that are served")
    base, arm = two_loads((100, 500), (180, 800))
    assert judge(f"arm: base, {base}", f"arm: s, {HEAD}, {arm}").decision == "Run s at c=1 and c=8."


def test_an_impossible_baseline_at_one_load_leaves_the_others(judge: Judge) -> None:
    base, arm = two_loads((50, 500), (180, 800))
    result = judge(f"arm: base, {base}", f"arm: s, {HEAD}, accept_length: 2.50, {arm}")
    assert "pays at c=8" in result.headline
    assert "At c=1 the baseline, or the accept length, cannot be right." in result.headline
    assert "s is the one to run there" in words(result)


def test_a_rate_that_fits_two_formulas_is_not_said_to_fit_one(judge: Judge) -> None:
    result = judge("arm: s, drafter: h, method: eagle3, accept_length: 2.00, accept_rate: 0.50")
    (evidence,) = result.conclusions[0].evidence
    assert evidence == "s: the length as printed; its rate fits both (length - 1) / drafted and length / (drafted + 1)"


def test_rates_of_several_loads_are_each_read(judge: Judge) -> None:
    points = "[{concurrency: 1, accept_rate: 0.60}, {concurrency: 8, accept_rate: 0.25}]"
    result = judge(f"arm: s, {HEAD}, version: 0.5.9, points: {points}")
    assert "s at c=1, rate 0.60, is accept length 2.40" in words(result)
    assert "s at c=8, rate 0.25, is accept length 1.00, the floor" in words(result)


def test_length_counted_over_drafted_steps_is_told_for_every_step(judge: Judge) -> None:
    result = judge("arm: n, method: ngram, draft_tokens: 5, accept_length: 3.40, drafted_share: 0.4", defaults="{engine: vllm}")
    assert "length 3.40 over the 40 % of steps that carried drafts, is accept length 1.96" in words(result)


def test_releases_that_mean_the_same_are_one_way(judge: Judge) -> None:
    row = f"{HEAD}, accept_rate: 0.60, concurrency: 16, cost_ratio: 2.4"
    result = judge(f"arm: rate, {row}", f"arm: old, {row}, version: 0.5.9", f"arm: new, {row}, version: 0.5.13")
    assert "if printed by sglang 0.5.6 to 0.5.10.post1 or printed by sglang 0.5.3.post3 to 0.5.5, accept length 2.40" in words(
        result
    )
    assert words(result).count("breaks even at accept length 2.40") == 1
    assert "(old has 2.40 and new has 2.80)" in words(result)
    assert "old 1.00x at c=16 (too near to call) and new 1.17x at c=16 (pays)" in result.headline


def test_a_drafter_that_fails_at_one_load_is_judged_by_the_others(judge: Judge) -> None:
    low, high = "accept_length: 2.70, concurrency: 1, throughput_tok_s", "accept_length: 1.00, concurrency: 8, throughput_tok_s"
    base, _ = two_loads((100, 600), (0, 0))
    result = judge(f"arm: base, {base}", f"arm: s, {HEAD}, points: [{{{low}: 160}}, {{{high}: 270}}]")
    assert result.headline.startswith(
        "As reported, speculation pays at c=1: best s, 1.60x at c=1. At c=8 s accepted next to nothing: a fault."
    )
    assert result.decision == "Run s at c=1; elsewhere the table does not decide."
    assert result.next_measurements[0].startswith("s at c=8 on the prompts of the other loads")


def test_a_rate_that_may_be_the_floor_is_called_so(judge: Judge) -> None:
    rows = ("arm: base, single_stream_tok_s: 60", f"arm: s, {HEAD}, single_stream_tok_s: 42, accept_rate")
    assert "By one meaning of what s printed, no draft was ever accepted." in judge(rows[0], f"{rows[1]}: 0.25").headline
    assert "By one meaning" not in judge(rows[0], f"{rows[1]}: 0.40").headline


def test_all_accepted_is_doubted_where_it_pays(judge: Judge) -> None:
    rows = (
        "arm: base, concurrency: 4, throughput_tok_s: 300",
        f"arm: s, {HEAD}, concurrency: 4, throughput_tok_s: 900, accept_length",
    )
    assert "s accepted every draft" in judge(rows[0], f"{rows[1]}: 4.00").headline
    assert judge(rows[0], f"{rows[1]}: 4.00").next_measurements[0].startswith("Nothing to run: read the output of s")
    assert "every draft" not in judge(rows[0], f"{rows[1]}: 3.60").headline


def test_other_weights_are_not_a_faster_arm(judge: Judge) -> None:
    result = judge(
        "arm: base, concurrency: 8, throughput_tok_s: 700, quantization: none",
        f"arm: s, {HEAD}, concurrency: 8, throughput_tok_s: 1300, quantization: fp8",
    )
    assert "not with the same weights" in result.decision
    assert "do not serve the same weights" in words(result)


def test_limits_that_nobody_knows_are_not_called_different(judge: Judge) -> None:
    rows = ("arm: base, concurrency: 8, throughput_tok_s: 150", "arm: s, drafter: h, concurrency: 8, throughput_tok_s: 170")
    result = judge(*rows, defaults="{engine: llama.cpp}")
    assert not has(result, "unequal-admission")
    assert "cannot be compared: how many requests each arm ran at once was not reported" in words(result)


def test_looking_up_matches_may_find_none_without_a_fault(judge: Judge) -> None:
    at = "concurrency: 2, workload"
    result = judge(
        f"arm: base, points: [{{{at}: chat, throughput_tok_s: 200}}, {{{at}: code, throughput_tok_s: 200}}]",
        f"arm: n, method: ngram, draft_tokens: 8, points: [{{{at}: chat, throughput_tok_s: 170, accept_length: 1.00}}, "
        f"{{{at}: code, throughput_tok_s: 290, accept_length: 2.40}}]",
    )
    assert "It is slower at c=2 (chat)" in result.headline
    assert "a fault" not in result.headline
    assert not has(result, "accept-length-at-floor")


def test_a_reported_cost_that_the_figures_contradict_is_not_used(judge: Judge) -> None:
    rows = ("arm: base, concurrency: 8, throughput_tok_s: 1000", f"arm: s, {HEAD}, accept_length: 2.50, concurrency: 8")
    result = judge(rows[0], f"{rows[1]}, throughput_tok_s: 1250, cost_ratio: 1.5")
    assert [round(point.cost_ratio.estimate, 2) for point in result.break_even] == [2.0]
    assert "reported 1.5 at c=8, against 2.00" in finding(result, "cost-ratios-disagree").evidence[0]
    assert not has(judge(rows[0], f"{rows[1]}, throughput_tok_s: 1250, cost_ratio: 1.95"), "cost-ratios-disagree")


def test_where_nothing_pays_on_two_engines_the_faster_plain_arm_is_run(judge: Judge) -> None:
    result = judge(
        "arm: vb, engine: vllm, concurrency: 8, throughput_tok_s: 900",
        "arm: vs, engine: vllm, drafter: h, accept_length: 1.90, concurrency: 8, throughput_tok_s: 770",
        "arm: sb, concurrency: 8, throughput_tok_s: 1400",
        f"arm: ss, {HEAD}, accept_length: 1.90, concurrency: 8, throughput_tok_s: 1030",
    )
    assert result.decision == "Run plain decoding (sb, the fastest of them at c=8)."
