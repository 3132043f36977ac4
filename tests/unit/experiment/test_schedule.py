"""Orders are counterbalanced, every trial is planned once, and what is left depends on what is done alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from breakeven.experiment.plan import Plan
from breakeven.experiment.schedule import MAX_ATTEMPTS, Done, Key, Pair, Step, next_block, planned_steps

MORE_ARMS = "  third: {}\n  fourth: {}"
SIDE = pytest.mark.parametrize("side_by_side", [True, False])


def nothing_open(num_blocks: int) -> frozenset[Pair]:
    return frozenset()


def key(step: Step) -> Key:
    return step.arm, step.load.label, step.block, step.repeat


def everything(plan: Plan, *, side_by_side: bool) -> list[Step]:
    """Steps in the order in which a run that never fails takes them."""
    done: dict[Key, Done] = {}
    steps = []
    while (block := next_block(plan, done, (), nothing_open, side_by_side=side_by_side)) is not None:
        for step in itertools.chain(*block.turns):
            steps.append(step)
            done[key(step)] = Done(attempts=1, spent=1, valid=True)
    return steps


@SIDE
def test_every_trial_once(make_plan: Callable[..., Plan], side_by_side: bool) -> None:
    plan = make_plan(arms=MORE_ARMS, launches="{min: 3, max: 9}")
    keys = [key(step) for step in everything(plan, side_by_side=side_by_side)]
    expected = itertools.product(["plain", "eagle", "third", "fourth"], ["c=1", "c=4"], range(3), range(2))
    assert sorted(keys) == sorted(expected)


def test_side_by_side_pairs_every_two_arms_in_both_orders(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(arms=MORE_ARMS, launches="{min: 2, max: 2}")
    passes: dict[tuple[str, int, int], list[str]] = {}
    for step in everything(plan, side_by_side=True):
        passes.setdefault((step.load.label, step.block, step.repeat), []).append(step.arm)
    for load, block in itertools.product(["c=1", "c=4"], range(2)):
        first, second = passes[load, block, 0], passes[load, block, 1]
        assert second == first[::-1]
        assert sorted(first) == ["eagle", "fourth", "plain", "third"]


@SIDE
def test_over_two_passes_an_arm_each_every_place_is_taken_equally_often(make_plan: Callable[..., Plan], side_by_side: bool) -> None:
    plan = make_plan(arms=MORE_ARMS, launches="{min: 8, max: 8}", repeats=1)
    places: Counter[tuple[str, int]] = Counter()
    order: dict[tuple[str, int], list[str]] = {}
    for step in everything(plan, side_by_side=side_by_side):
        order.setdefault((step.load.label, step.block), []).append(step.arm)
    for (label, _), arms in order.items():
        if label == "c=4":
            places.update((arm, place) for place, arm in enumerate(arms))
    assert set(places.values()) == {2}
    assert len(places) == 16


def test_blocks_reverse_arms_in_turn_and_load_points(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(repeats=1)
    first, second = (planned_steps(plan, block, side_by_side=False) for block in (0, 1))
    assert [turn[0].arm for turn in first] == [turn[0].arm for turn in second][::-1]
    assert [step.load.label for step in first[0]] == ["c=1", "c=4"]
    assert [step.load.label for step in second[0]] == ["c=4", "c=1"]
    assert [step.order for turn in first for step in turn] == [0, 1, 2, 3]


def test_the_seed_decides_the_base_order(make_plan: Callable[..., Plan]) -> None:
    orders = {
        tuple(step.arm for step in planned_steps(make_plan(f"seed: {seed}", arms=MORE_ARMS), 0, side_by_side=True)[0])
        for seed in range(20)
    }
    assert len(orders) > 5
    plan = make_plan(arms=MORE_ARMS)
    assert everything(plan, side_by_side=True) == everything(plan, side_by_side=True)


@SIDE
def test_stopped_anywhere_the_rest_comes_in_the_same_order(make_plan: Callable[..., Plan], side_by_side: bool) -> None:
    plan = make_plan(arms=MORE_ARMS)
    whole = everything(plan, side_by_side=side_by_side)
    for stopped_after in range(len(whole) + 1):
        done = {key(step): Done(attempts=1, spent=1, valid=True) for step in whole[:stopped_after]}
        rest = []
        while (block := next_block(plan, done, (), nothing_open, side_by_side=side_by_side)) is not None:
            for step in itertools.chain(*block.turns):
                rest.append(step)
                done[key(step)] = Done(attempts=1, spent=1, valid=True)
        assert rest == whole[stopped_after:]


def test_void_trials_come_again_until_their_tries_are_spent(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(repeats=1, launches="{min: 1, max: 1}")
    first = planned_steps(plan, 0, side_by_side=True)[0][0]
    done = {key(first): Done(attempts=1, spent=1)}
    block = next_block(plan, done, (), nothing_open, side_by_side=True)
    assert block is not None
    assert (key(block.turns[0][0]), block.turns[0][0].attempt) == (key(first), 1)
    done[key(first)] = Done(attempts=7, spent=MAX_ATTEMPTS)
    block = next_block(plan, done, (), nothing_open, side_by_side=True)
    assert block is not None
    assert key(first) not in map(key, block.turns[0])


def test_failed_arms_are_left_out(make_plan: Callable[..., Plan]) -> None:
    block = next_block(make_plan(), {}, ["eagle"], nothing_open, side_by_side=False)
    assert block is not None
    assert {step.arm for turn in block.turns for step in turn} == {"plain"}


def test_open_comparisons_get_more_blocks_up_to_the_budget(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(arms=MORE_ARMS, launches="{min: 1, max: 4}", repeats=1)
    asked = []

    def open_until_three(num_blocks: int) -> frozenset[Pair]:
        asked.append(num_blocks)
        return frozenset({("eagle", "c=4")}) if num_blocks < 3 else frozenset()

    done: dict[Key, Done] = {}
    later: dict[int, set[tuple[str, str]]] = {}
    while (block := next_block(plan, done, (), open_until_three, side_by_side=True)) is not None:
        for step in itertools.chain(*block.turns):
            done[key(step)] = Done(attempts=1, spent=1, valid=True)
            if step.block:
                later.setdefault(step.block, set()).add((step.arm, step.load.label))
    assert later == {1: {("plain", "c=4"), ("eagle", "c=4")}, 2: {("plain", "c=4"), ("eagle", "c=4")}}
    assert set(asked) == {1, 2, 3}


def test_an_open_comparison_of_a_failed_arm_asks_for_nothing(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(launches="{min: 1, max: 4}", repeats=1)
    done = {key(step): Done(attempts=1, spent=1, valid=True) for step in planned_steps(plan, 0, side_by_side=True)[0]}
    assert next_block(plan, done, ["eagle"], lambda _: frozenset({("eagle", "c=1")}), side_by_side=True) is None


def test_a_block_begun_before_a_kill_is_continued_as_it_was_planned(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(launches="{min: 1, max: 4}", repeats=1)
    done = {key(step): Done(attempts=1, spent=1, valid=True) for step in planned_steps(plan, 0, side_by_side=True)[0]}
    half_done = done | {("eagle", "c=1", 1, 0): Done(attempts=1, spent=1, valid=True)}

    def open_after_one(num_blocks: int) -> frozenset[Pair]:
        return frozenset({("eagle", "c=1")}) if num_blocks == 1 else frozenset()

    block = next_block(plan, half_done, (), open_after_one, side_by_side=True)
    assert block is not None
    assert [key(step) for step in block.turns[0]] == [("plain", "c=1", 1, 0)]
