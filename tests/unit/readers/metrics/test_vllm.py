"""vLLM's counters: those of a public report (vLLM PR 35966), and of servers that restart, contradict themselves or have engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.readers.conftest import codes, counters

from breakeven.readers.reading import Reading, ReadResult

ReadOne = Callable[..., Reading]
Read = Callable[..., ReadResult]


def test_counters_of_one_scrape(read_one: ReadOne) -> None:
    reading = read_one(counters(42668.0, 170672.0, 88374.0, (33281.0, 24321.0, 17494.0, 13278.0)))
    found = reading.acceptance
    assert found is not None
    assert found.num_drafted == 4
    assert found.draft_acceptance == pytest.approx(0.5178, abs=1e-4)
    assert found.accept_length == pytest.approx(3.071, abs=5e-4)
    assert found.as_printed["sglang 0.5.11 and later"] == pytest.approx(0.52, abs=0.005)
    assert found.as_printed["sglang 0.5.6 to 0.5.10.post1"] == pytest.approx(0.61, abs=0.005)
    assert sum(found.joint) == pytest.approx(2.071, abs=5e-4)
    assert codes(reading) == {"since-start"}


def test_the_number_of_drafts_without_position_counters(read_one: ReadOne) -> None:
    found = read_one(counters(42668.0, 170672.0, 88374.0)).acceptance
    assert found is not None
    assert found.num_drafted == 4


@pytest.mark.parametrize("in_one_file", [True, False])
def test_two_scrapes_are_differenced(read: Read, in_one_file: bool) -> None:
    scrapes = counters(40000, 160000, 83000), counters(42668, 170672, 88374)
    result = read("".join(scrapes)) if in_one_file else read(*scrapes)
    (reading,) = result.readings
    found = reading.acceptance
    assert reading.kind == "two scrapes"
    assert found is not None
    assert (found.rounds, found.drafted, found.accepted) == (2668, 10672, 5374)
    assert found.draft_acceptance == pytest.approx(0.5036, abs=1e-4)
    assert found.accept_length == pytest.approx(3.014, abs=5e-4)
    assert codes(reading) == set()


def test_engines_are_summed_before_dividing(read_one: ReadOne) -> None:
    found = read_one(counters(1000, 3000, 2700, engine="0") + counters(9000, 27000, 2700, engine="1")).acceptance
    assert found is not None
    assert found.accept_length == pytest.approx(1.54)  # a mean of the engines' own lengths would say 2.5
    assert found.draft_acceptance == pytest.approx(0.18)


def test_a_restart_between_scrapes_is_seen_though_the_sum_grew(read: Read) -> None:
    before = counters(1000, 3000, 1500, engine="0") + counters(1000, 3000, 1500, engine="1")
    after = counters(5000, 15000, 7500, engine="0") + counters(100, 300, 30, engine="1")
    (reading,) = read(before, after).readings
    assert reading.acceptance is not None
    assert reading.acceptance.rounds == 4100
    assert "counters-restarted" in codes(reading)
    (finding,) = [f for f in reading.findings if f.code == "counters-restarted"]
    assert "engine=1" in finding.evidence[0]


def test_a_restart_that_has_overtaken_the_old_counts_shows_in_their_beginning(read: Read) -> None:
    created = 'vllm:spec_decode_num_drafts_created{{engine="0",model_name="target"}} {}\n'
    start = "process_start_time_seconds {}\n"
    for extra in (created, start):
        (reading,) = read(
            counters(1000, 3000, 1500, extra=extra.format("1.7e9")), counters(2000, 6000, 600, extra=extra.format("1.7001e9"))
        ).readings
        assert "counters-restarted" in codes(reading), extra
        assert reading.acceptance is not None
        assert reading.acceptance.rounds == 2000


def test_scrapes_given_newest_first_are_turned_round(read: Read) -> None:
    start = "process_start_time_seconds 1.7e9\n"
    (reading,) = read(counters(42668, 170672, 88374, extra=start), counters(40000, 160000, 83000, extra=start)).readings
    assert reading.acceptance is not None
    assert reading.acceptance.rounds == 2668
    assert codes(reading) == {"scrapes-turned-round"}


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ((100, 400, 401), "401 accepted of 400"),
        ((100, 400, 200, (90, 60, 40, 30)), "sum to 220"),
        ((100, 400, 200, (50, 70, 50, 30)), "later position"),
        ((100, 500, 200, (90, 60, 30, 20)), "500 drafted tokens in 100 drafts of at most 4"),
    ],
)
def test_counters_that_contradict_each_other(read_one: ReadOne, figures: tuple, told: str) -> None:  # type: ignore[type-arg]
    reading = read_one(counters(*figures))
    (finding,) = [f for f in reading.findings if f.code == "counters-contradict"]
    assert told in " ".join(finding.evidence)


def test_dead_positions_in_counters(read: Read) -> None:
    (reading,) = read(counters(691, 10365, 143, (143, *[0] * 14))).readings
    assert "only-first-position-alive" in codes(reading)
