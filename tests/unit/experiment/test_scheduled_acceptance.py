"""Counts of arms whose number of drafts follows the batch. Those of vLLM are what the real one counted (docs/log.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.scheduled_acceptance import as_scheduled, off_schedule, tells_drafts
from breakeven.loadgen.samples import LoadPoint

SCHEDULE = ((1, 1, 3), (2, 3, 1), (4, 64, 0))
AT_TWO = Acceptance(num_steps=180, num_rounds=180, num_drafted=192, num_accepted=139, accepted_per_position=(135, 2, 2))
AT_FOUR = Acceptance(num_steps=335, num_rounds=30, num_drafted=30, num_accepted=19, accepted_per_position=(19, 0, 0))


def arm(engine: str, schedule: tuple[tuple[int, int, int], ...] = SCHEDULE) -> Arm:
    speculation = Speculation(method="eagle3", num_draft_tokens=3, schedule=schedule)
    return Arm(name="a", engine=engine, speculation=speculation, max_running_requests=64)


def at(concurrency: int) -> LoadPoint:
    return LoadPoint(concurrency=concurrency)


def verified(num_steps: int, accepted_per_position: tuple[int, ...]) -> Acceptance:
    """As SGLang tells them: every step a round, and three drafts each."""
    return Acceptance(
        num_steps=num_steps,
        num_rounds=num_steps,
        num_drafted=3 * num_steps,
        num_accepted=sum(accepted_per_position),
        accepted_per_position=accepted_per_position,
        source="requests",
    )


def test_one_number_at_every_batch_leaves_counts_as_they_are() -> None:
    counts = Acceptance(num_steps=78, num_rounds=78, num_drafted=234, num_accepted=87, accepted_per_position=(45, 25, 17))
    assert as_scheduled(counts, arm("vllm"), at(1)) == counts
    assert off_schedule(counts, arm("vllm"), at(1)) == ""
    assert as_scheduled(AT_TWO, arm("vllm", ()), at(2)) == AT_TWO
    assert as_scheduled(AT_TWO, Arm(name="plain", engine="vllm"), at(2)) == AT_TWO


def test_a_position_that_few_rounds_drafted_is_no_position_that_is_seldom_accepted() -> None:
    found = as_scheduled(AT_TWO, arm("vllm"), at(2))
    assert found.joint == (0.75,)
    assert replace(found, accepted_per_position=AT_TWO.accepted_per_position) == AT_TWO
    assert off_schedule(found, arm("vllm"), at(2)) == "its rounds had 1.07 drafts on average, not 1"


def test_where_it_rests_what_is_left_of_rounds_is_counted() -> None:
    found = as_scheduled(AT_FOUR, arm("vllm"), at(4))
    assert found.accept_length == pytest.approx(1.057, abs=0.001)
    assert (found.num_rounds, found.num_drafted, found.accepted_per_position) == (30, 30, (19,))
    assert off_schedule(found, arm("vllm"), at(4)) == ""
    idle = as_scheduled(replace(AT_FOUR, num_rounds=0, num_drafted=0), arm("vllm", ((1, 64, 0),)), at(4))
    assert idle.accepted_per_position == ()


def test_sglang_takes_the_number_it_was_started_with_for_all_rounds() -> None:
    two = as_scheduled(verified(100, (60, 40, 0)), arm("sglang", ((1, 8, 2), (9, 64, 0))), at(8))
    assert (two.num_rounds, two.num_drafted, two.accepted_per_position) == (100, 200, (60, 40))
    resting = as_scheduled(verified(100, (0, 0, 0)), arm("sglang", ((1, 64, 0),)), at(8))
    assert (resting.num_steps, resting.num_rounds, resting.num_drafted, resting.accepted_per_position) == (100, 0, 0, ())


def test_what_sglang_does_not_tell_is_not_guessed() -> None:
    mixed, load = arm("sglang"), at(2)
    assert not tells_drafts(mixed, load)
    found = as_scheduled(verified(180, (135, 2, 2)), mixed, load)
    assert (found.num_drafted, found.accepted_per_position) == (0, (135,))
    assert found.accept_length == pytest.approx(1.772, abs=0.001)
    assert "does not tell how many" in off_schedule(found, mixed, load)
    resting = as_scheduled(verified(335, (19, 0, 0)), mixed, at(4))
    assert (resting.num_rounds, resting.num_drafted, resting.accepted_per_position) == (0, 0, ())
    assert resting.accept_length == pytest.approx(1.057, abs=0.001)


@pytest.mark.parametrize(("concurrency", "told"), [(8, True), (9, False), (10, False), (20, False)])
def test_sglang_pads_batches_to_recorded_graphs_before_it_looks_them_up(concurrency: int, *, told: bool) -> None:
    """Nine running requests may be looked up as ten or eleven, where the other number begins."""
    assert tells_drafts(arm("sglang", ((1, 10, 3), (11, 64, 0))), at(concurrency)) is told
    assert tells_drafts(arm("vllm", ((1, 10, 3), (11, 64, 0))), at(concurrency))


def test_arrivals_at_a_rate_may_make_any_batch() -> None:
    load = LoadPoint(rate_per_s=2.0)
    assert as_scheduled(AT_TWO, arm("vllm"), load).accepted_per_position == (135,)
    assert not tells_drafts(arm("sglang"), load)
    assert off_schedule(AT_TWO, arm("vllm"), load) == ""
