"""Where a server counts no acceptance: its log's window, its gauge, and which source a trial's figure comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.acceptance import Acceptance, AcceptanceSource
from breakeven.engines.base import Arm, Counters, Speculation
from breakeven.experiment.estimated_acceptance import LogWindow, with_estimated_acceptance
from breakeven.experiment.live import Measured
from breakeven.experiment.summary import trial_acceptance
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import ClientHealth, LoadPoint, LoadResult, RequestSample

ARM = Arm(name="a", engine="sglang", speculation=Speculation(method="eagle3", num_draft_tokens=3))
HEALTH = ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.0)


def scrape(time_s: float, acceptance: Acceptance | None = None, *, at_finish: bool = True) -> Counters:
    return Counters(
        time_s=time_s,
        prompt_tokens=0,
        generation_tokens=0,
        num_running=1,
        num_waiting=0,
        acceptance=acceptance,
        at_finish=at_finish,
    )


def counts(steps: int, accepted: int, source: AcceptanceSource = "counters") -> Acceptance:
    return Acceptance(num_steps=steps, num_rounds=steps, num_drafted=3 * steps, num_accepted=accepted, source=source)


def measured(gauges: tuple[float, ...] = (), after: Acceptance | None = None) -> Measured:
    result = LoadResult(window_s=10.0, samples=(), health=HEALTH)
    return Measured(result=result, counters=(scrape(0.0), scrape(10.0, after)), gauges=gauges)


def trial(found: Measured, *reports: dict[str, int | list[int]]) -> Trial:
    samples = [
        RequestSample(
            index=index, prompt_id="p", kind="k", scheduled_s=0.0, start_s=0.0, first_token_s=0.1, end_s=1.0, prompt_tokens=1,
            output_tokens=21, finish_reason="length", arrivals=((0.1, 1), (1.0, 21)), speculation=report,
        )
        for index, report in enumerate(reports)
    ]  # fmt: skip
    return Trial(
        arm="a", load=LoadPoint(concurrency=1), block=0, launch="a/1", order=0, repeat=0, started_at_unix_s=0.0, window_s=10.0,
        samples=samples, health=HEALTH, counters=found.counters,
    )  # fmt: skip


REPORT: dict[str, int | list[int]] = {"spec_verify_ct": 10, "spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 30}


def test_the_log_of_the_window_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    window = LogWindow(log)
    assert window.lines() == []
    window.open()
    with log.open("a") as file:
        file.write("within\nand this\n")
    window.close()
    with log.open("a") as file:
        file.write("after\n")
    assert window.lines() == ["within", "and this"]
    gone = LogWindow(tmp_path / "absent")
    gone.open()
    gone.close()
    assert gone.lines() == []


def test_the_log_is_preferred_to_the_gauge() -> None:
    found = trial_acceptance(trial(with_estimated_acceptance(measured((3.0,)), ARM, counts(40, 20, "log"))))
    assert found is not None
    assert (found.accept_length, found.source) == (1.5, "log")


def test_a_gauge_is_averaged_over_its_looks() -> None:
    found = trial_acceptance(trial(with_estimated_acceptance(measured((2.0, 3.0, 0.0, 99.0)), ARM, None)))
    assert found is not None
    assert (found.accept_length, found.source, found.exact_steps) == (2.5, "gauge", False)


def test_without_any_there_is_none() -> None:
    assert trial_acceptance(trial(with_estimated_acceptance(measured(), ARM, None))) is None
    plain = replace(ARM, speculation=None)
    assert trial_acceptance(trial(with_estimated_acceptance(measured((2.0,)), plain, None))) is None
    none = Measured(result=LoadResult(window_s=1.0, samples=(), health=HEALTH), counters=None, gauges=(2.0,))
    assert with_estimated_acceptance(none, ARM, None) == none


def test_a_release_that_shows_speculation_and_counts_nothing_is_estimated() -> None:
    nothing = Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=40)
    found = trial_acceptance(trial(with_estimated_acceptance(measured((2.0,), nothing), ARM, None)))
    assert found is not None
    assert found.source == "gauge"


def test_what_answers_report_beats_counters_that_wait_for_the_end_but_no_others() -> None:
    at_finish = measured(after=counts(100, 30))
    assert trial_acceptance(trial(at_finish, REPORT, REPORT)) == Acceptance(
        num_steps=20, num_rounds=20, num_drafted=60, num_accepted=10, source="requests"
    )
    assert trial_acceptance(trial(at_finish)) == counts(100, 30)
    running = replace(at_finish, counters=(scrape(0.0, at_finish=False), scrape(9.0, counts(100, 30), at_finish=False)))
    assert trial_acceptance(trial(running, REPORT)) == counts(100, 30)
    estimated = with_estimated_acceptance(measured((2.0,)), ARM, None)
    found = trial_acceptance(trial(estimated, REPORT))
    assert found is not None
    assert found.source == "requests"
    behind_a_gateway = replace(at_finish, counters=None)
    found = trial_acceptance(trial(behind_a_gateway, REPORT))
    assert found is not None
    assert (found.source, found.accept_length) == ("requests", 1.5)


@pytest.mark.parametrize("other", ["requests", "log", "gauge"])
def test_together_counts_are_as_good_as_the_worst(other: AcceptanceSource) -> None:
    assert (counts(1, 1) + counts(1, 1, other)).source == other
    assert (counts(1, 1, other) + counts(1, 1)).source == other
    assert counts(3, 2, other).since(counts(1, 1)).source == other
