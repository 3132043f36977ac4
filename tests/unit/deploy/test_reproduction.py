from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from breakeven.deploy.reproduction import reproduction
from breakeven.engines.base import Arm
from breakeven.experiment.record import RunRecord
from breakeven.experiment.summary import RunSummary
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import Void

MakeRecord = Callable[..., RunRecord]
MakeTrial = Callable[..., Trial]


def faster(trial: Trial, factor: float) -> Trial:
    """The same tokens in a window `factor` times as short, so to speak: throughput times `factor`."""
    samples = [
        replace(
            sample,
            scheduled_s=sample.scheduled_s / factor,
            start_s=sample.start_s / factor,
            first_token_s=None if sample.first_token_s is None else sample.first_token_s / factor,
            end_s=sample.end_s / factor,
            arrivals=tuple((time_s / factor, tokens) for time_s, tokens in sample.arrivals),
        )
        for sample in trial.samples
    ]
    return replace(trial, samples=samples, window_s=trial.window_s / factor)


def test_a_launch_like_the_others_reproduces(make_record: MakeRecord, make_trial: MakeTrial, plain: Arm) -> None:
    record = make_record(plain, launches=6)
    again = reproduction(RunSummary(record), make_trial(plain, record.loads[0], 9))
    assert again.outcome == "reproduces"
    assert again.num_launches == 6
    assert "one launch; the run's 6 launches" in again.text
    assert again.spread_low < again.run_low < again.run_speed < again.run_high < again.spread_high  # type: ignore[operator]


@pytest.mark.parametrize(("factor", "outcome"), [(0.5, "slower"), (2.0, "faster")])
def test_a_launch_outside_the_spread_does_not(
    make_record: MakeRecord, make_trial: MakeTrial, plain: Arm, factor: float, outcome: str
) -> None:
    record = make_record(plain, launches=6)
    again = reproduction(RunSummary(record), faster(make_trial(plain, record.loads[0], 9), factor))
    assert again.outcome == outcome
    assert again.text.startswith(f"Does not reproduce: {outcome} than the spread of launches allows")
    assert "See what else ran on the machine" in again.text


def test_a_difference_that_matters_to_nobody_is_none(make_record: MakeRecord, make_trial: MakeTrial, plain: Arm) -> None:
    record = make_record(plain, launches=6)
    again = reproduction(RunSummary(record), faster(make_trial(plain, record.loads[0], 9), 1.02))
    assert again.speed > again.spread_high  # type: ignore[operator]
    assert again.outcome == "reproduces"
    assert "by less than the 3 % that matter" in again.text


def test_a_spread_that_holds_nearly_everything_tells_nothing(make_record: MakeRecord, make_trial: MakeTrial, plain: Arm) -> None:
    record = make_record(plain, launches=2)
    load = record.loads[0]
    slower = [faster(trial, 0.8) if trial.block else trial for trial in record.trials]
    again = reproduction(RunSummary(replace(record, trials=slower)), make_trial(plain, load, 9))
    assert again.outcome == "cannot be told"
    assert "too wide to tell" in again.text


def test_a_void_window_says_so(make_record: MakeRecord, make_trial: MakeTrial, plain: Arm) -> None:
    record = make_record(plain)
    void = replace(make_trial(plain, record.loads[0], 9), voids=(Void(code="queued", detail="3 waited"),))
    again = reproduction(RunSummary(record), void)
    assert (again.outcome, again.speed) == ("cannot be told", None)
    assert "queued: 3 waited" in again.text


def test_an_arm_that_was_never_measured_there(make_record: MakeRecord, make_trial: MakeTrial, plain: Arm) -> None:
    record = replace(make_record(plain), trials=())
    again = reproduction(RunSummary(record), make_trial(plain, record.loads[0], 9))
    assert again.outcome == "cannot be told"
    assert "no figure of plain there" in again.text


def test_a_single_launch_says_what_it_assumes(make_record: MakeRecord, make_trial: MakeTrial, plain: Arm) -> None:
    record = make_record(plain, launches=1)
    assert "taking launches to differ by 10 %" in reproduction(RunSummary(record), make_trial(plain, record.loads[0], 9)).text
