"""Whatever the table says: no interval is made up, and no reported outcome stands on unequal or unknown load."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.errors import ReportedError
from breakeven.verdict.reported import judge_table
from breakeven.verdict.reported.schema import ReportedTable
from breakeven.verdict.result import Result


def one_of(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


SPEEDS = st.one_of(st.just(""), st.floats(1.0, 5000.0).map("{:.1f}".format))
ROWS = st.fixed_dictionaries(
    {
        "engine": one_of("sglang", "vllm", "SGLang 0.5.9", "trtllm", "inhouse", ""),
        "version": one_of("", "0.5.9", "0.5.12", "0.33.0", "main", "0.5.3.post1", "0.8.5"),
        "drafter": one_of("none", "head", "other", ""),
        "method": one_of("", "eagle3", "ngram", "mtp"),
        "steps": one_of("", "1", "3", "8"),
        "topk": one_of("", "1", "4"),
        "draft_tokens": one_of("", "1", "4", "60"),
        "accept_length": st.one_of(one_of("", "1.00", "1", "0.4"), st.floats(1.0, 5.0).map("{:.2f}".format)),
        "accept_rate": st.one_of(one_of("", "0.25", "0.00"), st.floats(0.0, 1.0).map("{:.2f}".format)),
        "concurrency": one_of("", "1", "16", "256"),
        "throughput_tok_s": SPEEDS,
        "single_stream_tok_s": SPEEDS,
        "peak_tok_s": SPEEDS,
        "cost_ratio": one_of("", "1.95", "0.5"),
        "max_running_requests": one_of("", "default", "none", "48", "32 (default)"),
        "tensor_parallel": one_of("", "2", "8"),
    }
)


def judged(rows: list[dict[str, str]]) -> Result:
    named = [{"arm": f"arm {number}", **row} for number, row in enumerate(rows)]
    return judge_table(ReportedTable.model_validate({"rows": named}))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_any_table(rows: list[dict[str, str]]) -> None:
    try:
        result = judged(rows)
    except ReportedError:
        return  # one row whose single stream and throughput at one request contradict each other
    assert Result.model_validate_json(result.model_dump_json()) == result
    running = {(cell.arm, cell.load): cell.num_running for cell in result.cells}
    loads = {load.label: load for load in result.loads}
    for comparison in result.comparisons:
        assert comparison.ratio.low is None
        assert comparison.outcome != "no useful difference"
        if comparison.basis == "reported" and comparison.outcome != "undecided":
            assert loads[comparison.load].concurrency is not None
            assert running[comparison.arm, comparison.load] == running[comparison.baseline, comparison.load]
            assert not 1 / 1.1 < comparison.ratio.estimate < 1.1
    assert all(point.cost_ratio.estimate >= 0.97 for point in result.break_even)
    assert all(cell.acceptance is None or cell.acceptance.accept_length.estimate >= 0.999 for cell in result.cells)
