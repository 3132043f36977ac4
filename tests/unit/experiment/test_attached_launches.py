"""A server that is only attached to is one launch, however many blocks measure it: the statistics must not count it as several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.experiment.measure import measure
from breakeven.experiment.plan import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.stopping import open_comparisons
from breakeven.experiment.stored_run import read_run
from breakeven.experiment.summary import RunSummary, log_throughput


@pytest.fixture
def record(tmp_path: Path, make_plan: Callable[..., Plan]) -> RunRecord:
    """Three blocks of two arms that are the same but for noise."""
    plan = make_plan("seed: 3", arms="  twin: {simulation: {launch_sd: 0.05}}", launches="{min: 3, max: 3}")
    measure(plan, tmp_path / "run", lambda event: None)
    return replace(read_run(tmp_path / "run"), max_launches=9)


def attached(record: RunRecord, *names: str) -> RunRecord:
    return replace(
        record,
        arms=[replace(arm, url="http://h") if arm.name in names else arm for arm in record.arms],
        trials=[replace(trial, launch=f"{trial.arm}/attached") if trial.arm in names else trial for trial in record.trials],
    )


def blocks(record: RunRecord) -> dict[int, int]:
    return {block: len(found) for block, found in RunSummary(record).paired("twin", "plain", "c=1", log_throughput).items()}


def test_launched_servers_give_a_pair_a_block(record: RunRecord) -> None:
    assert blocks(record) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize("names", [("twin",), ("plain",), ("twin", "plain")])
def test_attached_servers_give_one(record: RunRecord, names: tuple[str, ...]) -> None:
    assert blocks(attached(record, *names)) == {0: 6}


def test_nothing_more_is_asked_of_servers_that_cannot_be_launched_again(record: RunRecord) -> None:
    assert ("twin", "c=1") in open_comparisons(record)
    assert ("twin", "c=1") not in open_comparisons(attached(record, "twin"))
    assert open_comparisons(attached(record, "plain")) == []
