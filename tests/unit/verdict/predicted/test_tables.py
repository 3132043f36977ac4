"""What a user with some measured rows gets of the others, from reported tables in YAML and CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.costs.table_predictions import Asked
from breakeven.printed.figures import Bounds
from breakeven.verdict.predicted.tables import predict_from_table

ROOT = Path(__file__).parents[4]
HEADS = """
name: Llama-3.1-8B
target: {name: Llama-3.1-8B-Instruct}
defaults: {engine: vllm, concurrency: 1, figures_from: benchmark, workload: mt-bench}
rows:
  - {arm: plain, drafter: none, tpot_ms: 7.07}
"""
# ms a token and accept length, by drafts
EAGLE3 = {2: (4.32, 2.36), 3: (4.09, 2.79), 4: (4.05, 3.08), 5: (4.13, 3.32), 6: (4.20, 3.46), 7: (4.29, 3.54)}
EAGLE1 = {2: (4.37, 2.10), 3: (4.29, 2.29), 4: (4.48, 2.39), 5: (4.71, 2.43), 6: (4.94, 2.45), 7: (5.20, 2.47)}


def heads(tmp_path: Path, rows: dict[int, tuple[float, float]], known: tuple[int, ...]) -> Path:
    head = "drafter: head, method: eagle3"
    lines = [f"  - {{arm: k{k}, {head}, draft_tokens: {k}, tpot_ms: {rows[k][0]}, accept_length: {rows[k][1]:.2f}}}" for k in known]
    path = tmp_path / "heads.yaml"
    path.write_text(HEADS + "\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("rows", [EAGLE3, EAGLE1])
@pytest.mark.parametrize("known", [(2, 3, 4), (2, 4), (3, 4, 5)])
def test_seven_drafts_from_fewer(tmp_path: Path, rows: dict[int, tuple[float, float]], known: tuple[int, ...]) -> None:
    result = predict_from_table(heads(tmp_path, rows, known), Asked(num_drafted=(7,)), threshold=None)
    (row,) = result.rows
    assert row.speed is not None
    assert 1000 / row.speed.high < rows[7][0] < 1000 / row.speed.low
    assert any("beyond the numbers of drafts measured" in doubt for doubt in row.doubts)


def test_one_measured_data_set_gives_the_others() -> None:
    result = predict_from_table(ROOT / "examples" / "predict" / "one-data-set.yaml", Asked(), threshold=None)
    code, finance = result.rows
    cost = 2.45 / (1315 / 981)
    assert code.cost.value == pytest.approx(cost)
    # one error bar: what is open of the speedup, with the accept length known to its digits, is open of c
    assert code.cost.high / code.cost.value == pytest.approx(1.21)
    assert code.speedup.value / code.speedup.low == pytest.approx(1.21, abs=0.002)
    assert 0.97 <= code.cost.low < code.cost.value
    assert code.speedup.value == pytest.approx(3.10 / cost)
    assert code.outcome == "pays"
    assert finance.outcome == "undecided"
    assert code.error.what == "from one other data set of the same configuration"
    assert "finance" in result.next_measurements[0]


def test_the_founding_case_at_one_stream() -> None:
    # the custom head's 40.8 against 63.6 tok/s at accept length 1.00 is a cost of 1.56; 1.68 would gain about 8 %
    path = ROOT / "examples" / "kimi-k2.5-blackwell" / "reported.yaml"
    (row,) = predict_from_table(path, Asked(accept_length=Bounds(1.68, 1.68, 1.68)), threshold=None).rows
    assert row.cost.value == pytest.approx(1.56, abs=0.005)
    assert row.speedup.value == pytest.approx(1.08, abs=0.005)
    assert row.outcome == "undecided"


def test_an_impossible_baseline_predicts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(
        "target: {name: M}\ndefaults: {engine: vllm 0.20.0, concurrency: 1, drafter: d, method: eagle3, draft_tokens: 3}\nrows:\n"
        "  - {arm: plain, drafter: none, method: none, workload: a, throughput_tok_s: 100}\n"
        "  - {arm: head, workload: a, throughput_tok_s: 300, accept_length: 2.40}\n"
        "  - {arm: head, workload: b, accept_length: 2.60}\n",
        encoding="utf-8",
    )
    result = predict_from_table(path, Asked(), threshold=None)
    assert result.rows == ()
    (left,) = result.left_out
    assert "below 0.97 is impossible" in left.reason
    assert result.headline.startswith("Nothing can be predicted")


def test_unequal_admission_says_nothing_of_a_cost(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(
        "target: {name: M}\ndefaults: {engine: sglang 0.5.9, concurrency: 100}\nrows:\n"
        "  - {arm: plain, drafter: none, throughput_tok_s: 1000, max_running_requests: none}\n"
        "  - {arm: head, drafter: d, method: eagle3, steps: 3, topk: 1, draft_tokens: 4, throughput_tok_s: 500,\n"
        "     accept_length: 2.40, accept_rate: 0.60, max_running_requests: 48}\n",
        encoding="utf-8",
    )
    result = predict_from_table(path, Asked(accept_length=Bounds(2.0, 2.0, 2.0)), threshold=None)
    assert result.rows == ()


def test_a_csv_of_speedups_is_read_too() -> None:
    result = predict_from_table(
        ROOT / "benchmarks" / "data" / "published_speedups.csv", Asked(accept_length=Bounds(2.2, 2.2, 2.2)), threshold=0.03
    )
    assert len(result.rows) > 30
    assert result.left_out == ()
    assert {row.outcome for row in result.rows} == {"pays", "slower", "undecided"}


def test_a_reported_cost_ratio_counts_as_a_measured_row(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(
        "target: {name: M}\nrows:\n"
        "  - {arm: a, engine: sglang 0.5.12, drafter: d, method: eagle3, steps: 3, topk: 1, draft_tokens: 4, accept_length: 2.26,\n"
        "     accept_rate: 0.42, concurrency: 8, cost_ratio: 1.95}\n",
        encoding="utf-8",
    )
    (row,) = predict_from_table(path, Asked(accept_length=Bounds(1.68, 1.68, 1.68)), threshold=None).rows
    assert row.cost.value == pytest.approx(1.95)
    assert row.speedup.value == pytest.approx(0.86, abs=0.005)
