"""The error bars that predictions carry are what leaving out and predicting gives on the published tables."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from breakeven.costs.prediction_error import KINDS, data_set_error
from breakeven.costs.table_file import read_speedups
from breakeven.costs.validation import LeftOut, coverage, leave_out, summary

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FROM_ROWS = [kind for kind in KINDS if kind != "kernel tables"]


@pytest.fixture(scope="module")
def left_out() -> tuple[LeftOut, ...]:
    return leave_out(read_speedups(BENCHMARKS / "data" / "published_speedups.csv"))


@pytest.mark.parametrize("kind", FROM_ROWS)
def test_printed_bars_hold_what_was_found(left_out: tuple[LeftOut, ...], kind: str) -> None:
    found, printed = summary(left_out, kind, kind), KINDS[kind]
    assert (found.num, found.num_targets) == (printed.num, printed.num_targets)
    # rounded up to whole per cent, and no further
    assert found.half <= printed.half < found.half + 0.01
    assert found.tenth <= printed.tenth < found.tenth + 0.016


def test_another_data_set_is_predicted_better_than_the_median_ratio_would(left_out: tuple[LeftOut, ...]) -> None:
    found = summary(left_out, "three or more data sets", "")
    assert found.half < 0.04
    assert found.tenth < 0.16


@pytest.mark.parametrize(
    "kind", ["one data set", "two data sets", "three or more data sets", "another drafter", "other numbers of drafts"]
)
def test_bars_of_other_targets_hold_most_of_a_target(left_out: tuple[LeftOut, ...], kind: str) -> None:
    assert coverage(left_out, kind) > 0.85


def test_more_known_data_sets_are_a_smaller_bar() -> None:
    assert data_set_error(1).tenth > data_set_error(2).tenth > data_set_error(3).tenth == data_set_error(9).tenth


def test_kernel_bars_hold_what_was_found() -> None:
    pytest.importorskip("aiconfigurator_core")
    spec = importlib.util.spec_from_file_location("prediction_benchmark", BENCHMARKS / "prediction.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = benchmark
    spec.loader.exec_module(benchmark)
    known, printed = benchmark.rounds(), KINDS["kernel tables"]
    found = [benchmark.kernel_summary(benchmark.kernel_errors(known, calibrated=calibrated)) for calibrated in (False, True)]
    assert (found[0].num, found[0].num_targets) == (printed.num, printed.num_targets)
    assert max(one.half for one in found) <= printed.half < max(one.half for one in found) + 0.01
    assert max(one.tenth for one in found) <= printed.tenth < max(one.tenth for one in found) + 0.01
