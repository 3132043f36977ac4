from __future__ import annotations

from dataclasses import replace

import pytest

from breakeven.drafter.evaluation.held_out import GreedyAnswer
from breakeven.drafter.evaluation.rounds import AnswerRounds
from breakeven.drafter.gates.served_gate import ServedCounts, served_gate

ACCEPTED = ((2, 0, 1), (0, 0), (3, 3))


def answers() -> list[GreedyAnswer]:
    return [
        GreedyAnswer(prompt_id=str(index), kind="x", prompt_ids=(1,), answer_ids=(5, index), beyond_ids=(), finished=True)
        for index in range(3)
    ]


def offline() -> list[AnswerRounds]:
    return [
        AnswerRounds(
            prompt_id=str(index),
            kind="x",
            looping=False,
            finished=True,
            num_prompt_tokens=1,
            num_answer_tokens=2,
            num_unknown_tokens=0,
            accepted=accepted,
            context=tuple(range(len(accepted))),
            drafts=((0, 0, 0),) * len(accepted),
            unknown=(False,) * len(accepted),
        )
        for index, accepted in enumerate(ACCEPTED)
    ]


def served(accepted=ACCEPTED, last_token: int = 2) -> list[ServedCounts]:
    return [
        ServedCounts(
            token_ids=(5, index if index < 2 else last_token),
            num_rounds=len(each),
            num_accepted=sum(each),
            accepted_per_position=tuple(sum(count > place for count in each) for place in range(3)),
        )
        for index, each in enumerate(accepted)
    ]


def test_equal_counts_pass_with_their_figures():
    result = served_gate("vLLM", answers(), offline(), served())
    assert result.outcome == "passed"
    assert "7 rounds and accepted 9 drafts" in result.summary
    assert result.figures["rounds_offline"] == result.figures["rounds_served"] == 7


@pytest.mark.parametrize(
    ("accepted", "hint"),
    [
        (((0, 0, 0), (0, 0), (0, 0)), "accepts nothing at all"),
        (((2, 0, 0), (0, 0), (3, 0)), "already first drafts differ"),
        # as many first drafts, fewer later ones
        (((1, 0, 1), (0, 0), (3, 1)), "first drafts agree and later ones differ"),
    ],
)
def test_a_difference_fails_and_its_pattern_points_somewhere(accepted, hint):
    result = served_gate("vLLM", answers(), offline(), served(accepted))
    assert (result.outcome, result.stage) == ("failed", "serving")
    assert hint in result.remedy


def test_the_same_sums_from_other_rounds_are_not_equal():
    swapped = ((1, 0, 2), (0, 0), (3, 3))
    assert served_gate("vLLM", answers(), offline(), served(swapped)).outcome == "passed"  # order of rounds is not told
    moved = ((2, 0, 0), (0, 1), (3, 3))
    result = served_gate("vLLM", answers(), offline(), served(moved))
    assert result.outcome == "failed"
    assert "differ on 2 (the first: 0)" in result.summary


def test_other_answers_decide_nothing():
    result = served_gate("vLLM", answers(), offline(), served(last_token=9))
    assert (result.outcome, result.stage) == ("undecided", "serving")
    assert "answers 1 prompts otherwise (the first: 2)" in result.summary
    assert "accept length 2.29, within the offline 2.29 (" in result.summary
    assert result.stops


def test_other_answers_with_another_accept_length_are_told_apart():
    """In bfloat16 answers differ anyway; whether the drafter works shows in the accept length."""
    accepted = ((2, 1, 1), (1, 1), (2, 1))
    steady = [replace(mine, accepted=each, context=tuple(range(len(each)))) for mine, each in zip(offline(), accepted, strict=True)]
    dead = served(((0, 0, 0), (0, 0), (0, 0)), last_token=9)
    result = served_gate("vLLM", answers(), steady, dead)
    assert result.outcome == "undecided"
    assert "accept length 1.00, outside the offline 2.29 (" in result.summary
