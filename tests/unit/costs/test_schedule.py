"""Schedules: only what surely pays is switched on, noise makes none flutter, and each engine reads them by its own rules."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.measured_surface import MeasuredSurface
from breakeven.costs.payoff import payoff
from breakeven.costs.schedule import Schedule, Stretch, make_schedule
from breakeven.costs.schedule_formats import for_sglang, for_vllm, vllm_ranges
from breakeven.costs.surface import Cost
from breakeven.errors import UsageError
from breakeven.versions import Version

HEAD = AcceptanceCurve((0.7, 0.45, 0.3))


def schedule(costs: dict[int, dict[int, float]], *, width: float = 0.02, head: AcceptanceCurve = HEAD) -> Schedule:
    """A schedule from c by batch and number of drafts."""
    measured = {
        (batch, k): Cost(value=c, low=c * (1 - width), high=c * (1 + width))
        for batch, by_k in costs.items()
        for k, c in by_k.items()
    }
    return make_schedule(payoff(MeasuredSurface(measured=measured), head, sorted(costs), (1, 2, 3), threshold=0.03))


def drafts(made: Schedule) -> list[tuple[int, int | None, int]]:
    return [(stretch.first, stretch.last, stretch.num_drafted) for stretch in made.stretches]


def test_cheap_rounds_take_many_drafts_and_dear_ones_none() -> None:
    made = schedule({1: {1: 1.05, 2: 1.1, 3: 1.15}, 8: {1: 1.2, 2: 1.7, 3: 2.1}, 64: {1: 1.7, 2: 2.2, 3: 3.0}})
    assert drafts(made) == [(1, 1, 3), (2, 8, 1), (9, None, 0)]
    assert "would not pay" in made.stretches[-1].why


def test_a_resting_schedule_pays_for_the_drafter_it_carries() -> None:
    measured = {(b, 3): Cost(value=c, low=c, high=c) for b, c in ((1, 1.2), (8, 1.9), (64, 2.5))}
    rows = payoff(MeasuredSurface(measured=measured), HEAD, (1, 8, 64), (3,), threshold=0.03)
    idle = {8: Cost(value=1.02, low=1.01, high=1.03), 64: Cost(value=1.2, low=1.1, high=1.3)}
    made = make_schedule(rows, idle)
    drafting, resting = made.stretches
    assert drafting.idle is None
    assert resting.idle == idle[64]
    # without a drafter at all 64 requests run 1.2 times as fast as under a schedule that rests there
    plain = make_schedule(rows)
    assert plain.stretches[1].idle is None
    assert plain.fixed.worst_loss > made.fixed.worst_loss


def test_a_fixed_choice_says_where_it_may_lose_what_its_value_hides() -> None:
    measured = {(1, 3): Cost(value=1.2, low=0.2, high=6.0), (8, 3): Cost(value=1.2, low=1.19, high=1.21)}
    made = make_schedule(payoff(MeasuredSurface(measured=measured), HEAD, (1, 8), (3,), threshold=0.03))
    assert drafts(made) == [(1, 1, 0), (2, 8, 3), (9, None, 0)]
    assert (made.fixed.num_drafted, made.fixed.worst_loss, made.fixed.undecided) == (3, 0.0, (1,))
    with pytest.raises(UsageError, match=r"by value is at worst 0% slower .*; whether it pays is undecided at 1$"):
        for_vllm(made, Version.parse("0.23.0"), max_running_requests=8, drafter="d")
    assert schedule({1: {3: 1.2}, 8: {3: 1.3}}).fixed.undecided == ()


def test_what_carrying_costs_does_not_matter_where_nothing_is_ever_drafted() -> None:
    rows = payoff(MeasuredSurface(measured={(8, 3): Cost(value=3.0, low=2.9, high=3.1)}), HEAD, (8,), (3,), threshold=0.03)
    (stretch,) = make_schedule(rows, {8: Cost(value=1.5, low=1.4, high=1.6)}).stretches
    assert stretch.idle is None


def test_beyond_the_largest_measured_batch_nothing_is_drafted() -> None:
    made = schedule({1: {3: 1.2}, 8: {3: 1.3}})
    assert drafts(made) == [(1, 8, 3), (9, None, 0)]
    assert made.stretches[-1].why == "nothing was measured beyond 8 running requests"


def test_what_is_undecided_is_not_switched_on() -> None:
    assert drafts(schedule({4: {1: 1.6, 2: 2.1, 3: 2.3}}, width=0.15)) == [(1, None, 0)]


def test_a_choice_that_noise_cannot_tell_from_the_best_is_kept() -> None:
    # at 8, two drafts are a hair better than three
    flat = {1: {1: 1.3, 2: 1.3, 3: 1.2}, 8: {1: 1.5, 2: 1.36, 3: 1.56}}
    assert drafts(schedule(flat, width=0.05)) == [(1, 8, 3), (9, None, 0)]
    clear = {1: {1: 1.3, 2: 1.3, 3: 1.2}, 8: {1: 1.5, 2: 1.36, 3: 2.0}}
    assert drafts(schedule(clear, width=0.01)) == [(1, 1, 3), (2, 8, 2), (9, None, 0)]


def test_one_fixed_number_is_weighed_against_the_schedule() -> None:
    made = schedule({1: {1: 1.05, 2: 1.1, 3: 1.15}, 64: {1: 1.65, 2: 3.0, 3: 4.0}})
    assert made.fixed.num_drafted == 1
    assert made.fixed.worst_batch == 1
    assert made.fixed.worst_loss == pytest.approx(1 - (1.7 / 1.05) / (2.45 / 1.15))


@given(
    st.dictionaries(
        st.integers(1, 300),
        st.fixed_dictionaries({1: st.floats(1.0, 4.0), 2: st.floats(1.0, 4.0), 3: st.floats(1.0, 6.0)}),
        min_size=1,
        max_size=6,
    ),
    st.floats(0.0, 0.3),
)
def test_schedules_cover_every_batch_once_and_draft_only_what_pays(costs: dict[int, dict[int, float]], width: float) -> None:
    made = schedule(costs, width=width)
    assert made.stretches[0].first == 1
    assert made.stretches[-1].last is None
    assert made.stretches[-1].num_drafted == 0 or made.stretches[-1].first > max(costs)
    for one, following in zip(made.stretches, made.stretches[1:], strict=False):
        assert one.last is not None
        assert following.first == one.last + 1
    for stretch in made.stretches:
        assert stretch.speedup is None or stretch.speedup.low > 1.03
    ranges = vllm_ranges(made.stretches, 1000)
    assert ranges[0][0] == 1
    assert ranges[-1][1] == 1000


def test_vllm_served_with_a_larger_limit_drafts_nothing_where_nothing_was_measured() -> None:
    made = schedule({1: {3: 1.2}, 64: {3: 1.3}})
    assert [made.stretches[-1].first, made.stretches[-1].num_drafted] == [65, 0]
    assert vllm_ranges(made.stretches, 64) == [[1, 64, 3], [65, 65, 0]]
    assert vllm_ranges(made.stretches, 8) == [[1, 64, 3], [65, 65, 0]]


def test_vllm_gets_ranges_from_one_to_its_limit_with_the_tail_spelled_out() -> None:
    made = schedule({1: {3: 1.2}, 8: {3: 1.3}})
    spelled = for_vllm(made, Version.parse("0.24.0"), max_running_requests=64, drafter="/drafter")
    flag, text = spelled.flags
    assert flag == "--speculative-config"
    # vLLM carries the last number on beyond the last range, so the zero must be there
    assert json.loads(text) == {
        "method": "eagle3",
        "model": "/drafter",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 0]],
    }


def test_sglang_gets_slots_with_one_candidate_each() -> None:
    made = schedule({1: {3: 1.2}, 8: {3: 1.3}})
    spelled = for_sglang(made, Version.parse("0.5.23"), drafter="/drafter", config_path="adaptive.json")
    assert spelled.config is not None
    assert json.loads(spelled.config) == {"1": {"candidate_steps": [3]}, "9": {"candidate_steps": [0]}}
    assert spelled.flags[-1] == "adaptive.json"
    assert "--speculative-num-draft-tokens" in spelled.flags


def test_releases_and_layouts_without_schedules_are_refused_with_the_fixed_choice() -> None:
    made = schedule({1: {3: 1.2}, 8: {3: 1.3}})
    with pytest.raises(UsageError, match=r"vLLM 0\.23\.0 has no .*3 drafts everywhere, which by value is at worst 0% slower"):
        for_vllm(made, Version.parse("0.23.0"), max_running_requests=8, drafter="d")
    with pytest.raises(UsageError, match="data parallelism"):
        for_vllm(made, Version.parse("0.30.0"), max_running_requests=8, drafter="d", data_parallel=2)
    with pytest.raises(UsageError, match=r"SGLang 0\.5\.12\.post1 has no steps by batch size"):
        for_sglang(made, Version.parse("0.5.12.post1"), drafter="d", config_path="c")
    with pytest.raises(UsageError, match="attention data parallelism"):
        for_sglang(made, Version.parse("0.5.20"), drafter="d", config_path="c", data_parallel=2)


def test_a_schedule_without_drafts_is_no_schedule() -> None:
    nothing = schedule({1: {1: 3.0, 2: 4.0, 3: 5.0}})
    assert nothing.stretches == (Stretch(first=1, last=None, num_drafted=0, why=nothing.stretches[0].why),)
    with pytest.raises(UsageError, match="serve without speculation"):
        for_vllm(nothing, None, max_running_requests=8, drafter="d")


def test_newer_releases_are_called_unverified() -> None:
    made = schedule({1: {3: 1.2}})
    spelled = for_vllm(made, Version.parse("0.99.0"), max_running_requests=8, drafter="d")
    assert any("0.99.0 was not looked at" in remark for remark in spelled.remarks)
