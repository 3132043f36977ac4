"""Reading tables of speedups, impossible rows by rule, and predictions from what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.costs.table import Shape
from breakeven.costs.table_file import columns_left_alone, is_speedup_table, read_speedups
from breakeven.costs.table_predictions import Asked, predict_table
from breakeven.costs.validation import impossible
from breakeven.errors import ReportedError
from breakeven.printed.figures import Bounds

HEADER = "target,hardware,engine,drafter,steps,topk,draft_tokens,workload,concurrency,accept_length,plain_tok_s,speculative_tok_s\n"


def table(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "speedups.csv"
    path.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_digits_leave_an_interval_on_the_cost(tmp_path: Path) -> None:
    (row,) = read_speedups(table(tmp_path, "M,H100,vllm,d,3,1,3,mt-bench,1,2.4,100,150"))
    assert row.shape == Shape(3, 1, 3)
    assert row.cost is not None
    assert row.cost.estimate == pytest.approx(1.6)
    assert row.cost.low == pytest.approx(2.35 / (150.5 / 99.5))
    assert row.cost.high == pytest.approx(2.45 / (149.5 / 100.5))


# a mixture of experts on two GPUs: shapes, speed and accept length; the plain server does 222.47 tok/s
LOSING = [
    "M,H100,sglang,d,3,1,4,mt-bench,1,1.86,222.47,159.78",
    "M,H100,sglang,d,3,3,8,mt-bench,1,2.20,222.47,172.99",
    "M,H100,sglang,d,3,3,4,mt-bench,1,1.99,222.47,207.62",
    "M,H100,sglang,d,7,4,16,mt-bench,1,2.52,222.47,191.90",
    "M,H100,sglang,d,6,4,12,mt-bench,1,2.42,222.47,171.54",
    "M,H100,sglang,d,8,8,60,mt-bench,1,3.2,222.47,177.5",
    "M,H100,sglang,d,3,1,4,mt-bench,4,1.86,566.21,447.90",
    "M,H100,sglang,d,3,3,8,mt-bench,4,2.27,566.21,426.46",
]


def test_costs_of_a_losing_benchmark(tmp_path: Path) -> None:
    rows = read_speedups(table(tmp_path, *LOSING))
    costs = [row.cost.estimate for row in rows if row.cost is not None]
    assert costs == pytest.approx([2.59, 2.83, 2.13, 2.92, 3.14, 4.01, 2.35, 3.01], abs=0.006)
    assert max(row.speedup.estimate for row in rows if row.speedup is not None) == pytest.approx(0.93, abs=0.005)


def test_its_head_would_need_its_cost_to_break_even(tmp_path: Path) -> None:
    rows = read_speedups(table(tmp_path, *LOSING))
    found, _, _ = predict_table(rows, Asked(accept_length=Bounds(2.59, 2.59, 2.59)), threshold=0.03)
    own = next(one for one in found if "k=3 at c=1," in one.label)
    assert own.speedup == pytest.approx(1.0, abs=0.005)
    assert own.outcome == "undecided"
    low, _, _ = predict_table(rows, Asked(accept_length=Bounds(1.86, 1.86, 1.86)), threshold=0.03)
    assert next(one for one in low if "k=3 at c=1," in one.label).outcome == "slower"


def test_impossible_rows_are_found_and_not_used(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "M,H100,vllm,d,3,1,3,a,1,2.40,100,300",  # c = 0.80
        "M,H100,vllm,d,3,1,3,b,1,,100,450",  # more than four tokens a round at most
        "M,H100,vllm,d,3,1,3,c,1,2.0,100,204",  # 0.98: possible as far as its digits go
        "M,H100,vllm,d,3,1,3,d,1,2.4,100,",
    )
    rows = read_speedups(path)
    assert [row.dataset for row in impossible(rows)] == ["a", "b"]
    found, void, missing = predict_table(rows, Asked(), threshold=0.03)
    assert [row.number for row in void] == [1, 2]
    assert missing == ()
    (one,) = found
    assert one.cost.value == pytest.approx(2.0 / 2.04)
    assert one.evidence == ("M / d / k=3 / c at c=1",)
    # no error bar makes a round cheaper than a plain step
    assert one.high <= 2.45 / 0.97


def test_a_row_without_a_speedup_comes_from_three_other_data_sets(tmp_path: Path) -> None:
    lines = [
        f"M,H100,vllm,d,3,1,3,{name},1,{length},100,{100 * length / 1.5:.1f}"
        for name, length in zip("abc", (2.0, 2.4, 2.8), strict=True)
    ]
    (one,), _, _ = predict_table(
        read_speedups(table(tmp_path, *lines, "M,H100,vllm,d,3,1,3,x,1,2.5,100,")), Asked(), threshold=0.03
    )
    assert one.speedup == pytest.approx(2.5 / 1.5, rel=0.01)
    assert one.error.what.startswith("from at least three other data sets")
    assert one.low < one.speedup < one.high
    assert one.outcome == "pays"


def test_another_drafter_stands_in_and_another_machine_does_not(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "M,H100,vllm,one,3,1,3,a,1,2.0,100,125",
        "M,H100,vllm,two,3,1,3,a,1,2.6,100,",
        "M,H200,vllm,two,3,1,3,a,1,2.6,100,",
    )
    (one,), _, missing = predict_table(read_speedups(path), Asked(), threshold=0.03)
    assert one.error.what.startswith("from another drafter")
    assert one.speedup == pytest.approx(2.6 / 1.6)
    assert len(missing) == 1


def test_rows_that_disagree_widen_the_interval(tmp_path: Path) -> None:
    lines = [f"M,H100,vllm,d,3,1,3,{name},1,2.4,100,{speed}" for name, speed in (("a", 120), ("b", 150), ("c", 200))]
    (one,), _, _ = predict_table(
        read_speedups(table(tmp_path, *lines, "M,H100,vllm,d,3,1,3,x,1,2.4,100,")), Asked(), threshold=0.03
    )
    assert one.low <= 1.2
    assert one.high >= 2.0
    assert any("disagree" in doubt for doubt in one.doubts)


def test_other_numbers_of_drafts_need_two(tmp_path: Path) -> None:
    rows = read_speedups(table(tmp_path, "M,H100,vllm,d,3,1,3,a,1,2.4,100,150"))
    found, _, missing = predict_table(rows, Asked(num_drafted=(5,)), threshold=0.03)
    assert found == ()
    assert "a second one" in missing[0][1]


SHORT = "target,engine,drafter,method,draft_tokens,workload,concurrency,"


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "M;vllm 0.11.0;d;eagle3;3;a;1;2,60;150,0;1.261,5",
        header="target;engine;drafter;method;draft_tokens;workload;concurrency;accept_len;base_tok_s;spec_tok_s\n",
    )
    assert is_speedup_table(path)
    (row,) = read_speedups(path)
    assert row.accept_length is not None
    assert row.accept_length.estimate == pytest.approx(2.6)
    assert row.speedup is not None
    assert row.speedup.estimate == pytest.approx(1261.5 / 150.0)


@pytest.mark.parametrize(("written", "value"), [("1.74x", 1.74), ("1,74 ×", 1.74), ("+85 %", 1.85), ("-10%", 0.9), ("1.5", 1.5)])
def test_a_speedup_as_people_write_it(tmp_path: Path, written: str, value: float) -> None:
    (row,) = read_speedups(table(tmp_path, f'M,vllm,d,eagle3,3,a,1,2.6,"{written}"', header=SHORT + "accept_len,speedup\n"))
    assert row.speedup is not None
    assert row.speedup.estimate == pytest.approx(value)


def test_a_percentage_without_a_sign_is_two_things(tmp_path: Path) -> None:
    with pytest.raises(ReportedError, match=r"row 1, speedup: '160 %' may be a ratio or a gain; write 1.60 or \+60 %"):
        read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a,1,2.6,160 %", header=SHORT + "accept_len,speedup\n"))


@pytest.mark.parametrize(
    ("unit", "speedup"),
    [
        ("TPOT ms", 2.0),
        ("ms/token", 2.0),
        ("ITL (ms)", 2.0),
        ("s", 2.0),
        ("1000/TPOT", 0.5),
        ("tok/s per user", 0.5),
        ("output tokens per second", 0.5),
        ("", 0.5),
    ],
)
def test_less_of_a_time_is_faster(tmp_path: Path, unit: str, speedup: float) -> None:
    (row,) = read_speedups(
        table(tmp_path, f"M,vllm,d,eagle3,3,a,1,2.6,8.00,4.00,{unit}", header=SHORT + "accept_len,base_tok_s,spec_tok_s,unit\n")
    )
    assert row.speedup is not None
    assert row.speedup.estimate == pytest.approx(speedup)


def test_columns_of_times(tmp_path: Path) -> None:
    (row,) = read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a,1,2.6,8.00,4.00", header=SHORT + "al,plain_tpot_ms,spec_tpot_ms\n"))
    assert row.speedup is not None
    assert row.speedup.estimate == pytest.approx(2.0)
    assert row.plain_speed == pytest.approx(125.0)


def test_figures_at_odds_are_left_out_with_the_reason(tmp_path: Path) -> None:
    header = SHORT + "accept_len,base_tok_s,spec_tok_s,speedup\n"
    rows = read_speedups(
        table(
            tmp_path,
            "M,vllm,d,eagle3,3,a,1,2.6,100,150,1.20",
            "M,vllm,d,eagle3,3,b,1,2.6,100,150,1.5",
            "M,vllm,d,eagle3,3,c,1,4.60,100,150,1.51",
            "M,vllm,d,eagle3,3,e,1,2.4,,,",
            header=header,
        )
    )
    found, void, _ = predict_table(rows, Asked(), threshold=0.03)
    assert [row.dataset for row in void] == ["a", "c"]
    assert "its two speeds give 1.50" in void[0].why_impossible
    assert "above 4, the most that k=3 can give" in void[1].why_impossible
    assert found[0].evidence == ("M / d / k=3 / b at c=1",)


def test_drafts_of_vllm_alone_are_a_chain(tmp_path: Path) -> None:
    header = SHORT + "accept_len,speedup\n"
    rows = read_speedups(table(tmp_path, "M,vllm 0.31.0,d,eagle3,3,a,1,2.6,1.5", header=header))
    assert rows[0].shape == Shape(3, 1, 3)
    # a tree of SGLang is none because its number of nodes is known
    (tree,) = read_speedups(table(tmp_path, "M,sglang,d,eagle3,8,a,1,2.6,1.5", header=header))
    assert not tree.shape.is_chain


def test_a_rate_is_read_by_the_engines_release(tmp_path: Path) -> None:
    header = "engine,steps,topk,draft_tokens,concurrency,accept_rate,speedup\n"
    old, new, unknown = (
        read_speedups(table(tmp_path, f"{engine},3,1,4,1,0.58,1.5", header=header))[0]
        for engine in ("sglang 0.5.8", "sglang 0.5.15", "sglang")
    )
    assert old.accept_length is not None
    assert old.accept_length.estimate == pytest.approx(2.32)
    assert new.accept_length is not None
    assert new.accept_length.estimate == pytest.approx(2.74)
    assert unknown.accept_length is None
    assert "accept length 2.32 or 2.74" in unknown.why_impossible


def test_other_contexts_and_loads_do_not_stand_in(tmp_path: Path) -> None:
    header = SHORT + "accept_len,speedup,input_len\n"
    rows = read_speedups(
        table(
            tmp_path,
            "M,vllm,d,eagle3,3,a,8,2.6,1.30,1024",
            "M,vllm,d,eagle3,3,b,8,2.6,1.80,65536",
            "M,vllm,d,eagle3,3,e,8,2.6,,1500",
            "M,vllm,d,eagle3,3,f,8,2.6,,8000",
            "M,vllm,d,eagle3,3,g,64,2.6,,1024",
            header=header,
        )
    )
    found, _, missing = predict_table(rows, Asked(), threshold=0.03)
    assert [one.speedup for one in found] == pytest.approx([1.30])
    assert [reason.partition(",")[0] for _, reason in missing] == [
        "measured only at other contexts",
        "measured only at concurrency 8",
    ]


def test_an_accept_length_that_no_shape_allows_is_not_passed_over(tmp_path: Path) -> None:
    rows = read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a:20,1,2.6,1.5", header=SHORT + "accept_len,speedup\n"))
    _, _, missing = predict_table(rows, Asked(accept_length=Bounds(4.5, 4.5, 4.5)), threshold=0.03)
    assert missing == (("accept length 4.5", "above 4, the most that any shape in the table can give"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "no column speedup"),
        ("speedup,accept_length\n-120%,2\n", "a loss of everything"),
        ("speedup,accept_length\nfast,2\n", "row 1, speedup"),
        ("speedup,accept_length\n-1,2\n", "row 1, speedup"),
        ("speedup,accept_length\n1.5,0.2\n", "cannot be below 1"),
        ("speedup,accept_length\nnan,2\n", "not a finite number"),
    ],
)
def test_what_is_wrong_is_said_with_its_row(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ReportedError, match=message):
        read_speedups(path)


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"speedup\n\xff\xfe\n")
    with pytest.raises(ReportedError, match="UTF-8"):
        read_speedups(path)
    assert is_speedup_table(path)
    assert not is_speedup_table(tmp_path / "table.yaml")
    with pytest.raises(ReportedError, match="cannot be read"):
        read_speedups(tmp_path / "missing.csv")


def test_headers_as_people_write_them(tmp_path: Path) -> None:
    header = "Model,Engine,Draft Model,Method,Num Steps,TopK,Draft Tokens,Dataset,Batch Size,Accept Length (τ),Speedup (x)\n"
    path = table(tmp_path, "M,sglang,d,eagle3,3,1,4,a,8,2.45,1.34", "M,sglang,d,eagle3,3,1,4,b,8,3.10,n/a", header=header)
    assert is_speedup_table(path)
    measured, asked = read_speedups(path)
    assert (measured.concurrency, measured.drafter, measured.shape) == ("8", "d", Shape(3, 1, 4))
    assert measured.cost is not None
    assert measured.cost.estimate == pytest.approx(2.45 / 1.34)
    assert asked.speedup is None
    assert columns_left_alone(path) == ()


def test_a_length_without_the_bonus_token_is_one_longer(tmp_path: Path) -> None:
    header = SHORT + "accept_len,bonus,speedup\n"
    left_out, held = read_speedups(
        table(tmp_path, "M,vllm,d,eagle3,3,a,8,0.95,excluded,1.34", "M,vllm,d,eagle3,3,b,8,2.45,,1.34", header=header)
    )
    assert left_out.cost is not None
    assert left_out.cost.estimate == pytest.approx(1.95 / 1.34)
    assert held.cost is not None
    assert held.cost.estimate == pytest.approx(2.45 / 1.34)
    with pytest.raises(ReportedError, match="bonus: 'perhaps'; expected included or excluded"):
        read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a,8,1.45,perhaps,1.34", header=header))
    with pytest.raises(ReportedError, match="bonus: excluded"):
        read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a,8,0.95,,1.34", header=header))


@pytest.mark.parametrize("over", ["plain", "Vanilla decoding", "no speculation", "autoregressive", "baseline", "AR", ""])
def test_a_speedup_over_plain_decoding_counts(tmp_path: Path, over: str) -> None:
    header = SHORT + "accept_len,speedup,baseline\n"
    assert not impossible(read_speedups(table(tmp_path, f"M,vllm,d,eagle3,3,a,8,2.45,1.34,{over}", header=header)))


@pytest.mark.parametrize("over", ["ngram", "EAGLE-2", "vLLM 0.8", "previous drafter"])
def test_a_speedup_over_something_else_says_nothing(tmp_path: Path, over: str) -> None:
    header = SHORT + "accept_len,speedup,speedup_over\n"
    rows = read_speedups(
        table(tmp_path, f"M,vllm,d,eagle3,3,a,8,2.45,1.34,{over}", f"M,vllm,d,eagle3,3,b,8,2.60,,{over}", header=header)
    )
    (void,) = impossible(rows)
    assert void.dataset == "a"
    assert "not over plain decoding" in void.why_impossible


@pytest.mark.parametrize(
    "name", ["batch_size_per_gpu", "Batch size / GPU", "request rate", "num_users", "qps", "BS", "max_concurrency"]
)
def test_loads_under_another_name_do_not_stand_in_for_each_other(tmp_path: Path, name: str) -> None:
    header = f"model,drafter,steps,topk,draft_tokens,workload,accept_length,speedup,{name}\n"
    path = table(tmp_path, "M,d,3,1,4,a,2.45,1.70,1", "M,d,3,1,4,b,3.10,,32", header=header)
    with pytest.raises(ReportedError, match="looks like the load, which is read from concurrency"):
        read_speedups(path)


def test_replicas_are_no_tensor_parallel_size(tmp_path: Path) -> None:
    header = SHORT + "tp,num_gpus,accept_len,speedup\n"
    rows = read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a,8,1,1,2.45,1.34", "M,vllm,d,eagle3,3,b,8,1,8,2.6,", header=header))
    found, _, missing = predict_table(rows, Asked(), threshold=0.03)
    assert (found, len(missing)) == ((), 1)


def test_an_accept_length_with_its_bonus_in_the_header_is_asked_about(tmp_path: Path) -> None:
    header = SHORT + "Accept length (excl. bonus),speedup\n"
    with pytest.raises(ReportedError, match="call it accept_length, and say in a column bonus"):
        read_speedups(table(tmp_path, "M,vllm,d,eagle3,3,a,8,1.45,1.34", header=header))


def test_columns_that_are_left_alone_are_named(tmp_path: Path) -> None:
    path = table(tmp_path, "M,vllm,d,eagle3,3,a,8,2.45,1.34,0.7,x", header=SHORT + "accept_len,speedup,Temperature,source\n")
    assert columns_left_alone(path) == ("Temperature", "source")


def test_a_row_of_another_number_of_drafts_keeps_its_own_accept_length(tmp_path: Path) -> None:
    header = "target,drafter,method,steps,topk,draft_tokens,workload,concurrency,accept_length,speedup\n"
    rows = read_speedups(
        table(
            tmp_path,
            "M,d,eagle3,3,1,4,a,8,2.45,1.34",
            "M,d,eagle3,5,1,6,a,8,2.80,1.30",
            "M,d,eagle3,7,1,8,a,8,2.85,",
            header=header,
        )
    )
    # c = 1.828 with 3 drafts and 2.154 with 5: 2.479 with 7
    (one,), _, missing = predict_table(rows, Asked(), threshold=0.03)
    assert one.speedup == pytest.approx(2.85 / 2.479, rel=1e-3)
    assert one.error.what.startswith("from other numbers of drafts")
    assert missing == ()
    # asked for as well, it is told once
    again, _, missing = predict_table(rows, Asked(num_drafted=(7,)), threshold=0.03)
    assert [prediction.label for prediction in again] == [one.label]
    assert missing == ()


def test_the_row_that_disagrees_is_named(tmp_path: Path) -> None:
    lines = [
        f"M,H100,vllm,d,3,1,3,{name},1,{length},100,{speed}"
        for name, length, speed in (("a", "2.45", 134), ("b", "2.60", 141), ("odd", "2.10", 170))
    ]
    (one,), _, _ = predict_table(
        read_speedups(table(tmp_path, *lines, "M,H100,vllm,d,3,1,3,x,1,1.9,100,")), Asked(), threshold=0.03
    )
    assert any("row 3 (M / d / k=3 / odd at c=1), c 1.24" in doubt for doubt in one.doubts)
