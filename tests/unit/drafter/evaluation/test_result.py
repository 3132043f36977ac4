from __future__ import annotations

import math

import pytest

from breakeven.drafter.evaluation.looping import is_looping
from breakeven.drafter.evaluation.result import Evaluation, accept_length_gain, acceptance_of, summarise
from breakeven.drafter.evaluation.rounds import AnswerRounds


def answer(name: str, accepted: list[int], *, kind: str = "chat", looping: bool = False, context: int = 10, unknown=()):
    contexts, at = [], context
    for count in accepted:
        contexts.append(at)
        at += count + 1
    return AnswerRounds(
        prompt_id=name,
        kind=kind,
        looping=looping,
        finished=True,
        num_prompt_tokens=context - 1,
        num_answer_tokens=at - context + 1,
        num_unknown_tokens=1,
        accepted=tuple(accepted),
        context=tuple(contexts),
        drafts=tuple((0, 0, 0) for _ in accepted),
        unknown=tuple(index in unknown for index in range(len(accepted))),
    )


ANSWERS = [
    answer("a", [0, 1, 3, 0], unknown=[0]),
    answer("b", [2, 2], kind="code", context=500),
    answer("c", [3, 3, 3, 3], looping=True),
    answer("d", []),
]


def summary(answers=ANSWERS) -> Evaluation:
    return summarise(answers, num_draft_tokens=3, draft_vocab_size=50, auxiliary_layers=(1, 2, 3))


def test_counts_become_figures():
    evaluation = summary()
    overall = evaluation.overall
    assert (overall.num_prompts, overall.num_rounds, overall.num_drafted, overall.num_accepted) == (3, 10, 30, 20)
    assert overall.accept_length == pytest.approx(3.0)
    assert overall.joint == (0.8, 0.7, 0.5)
    assert overall.conditional == pytest.approx((0.8, 0.875, 5 / 7))
    assert 1.0 <= overall.accept_length_low < 3.0 < overall.accept_length_high <= 4.0


def test_loops_are_taken_out_and_said():
    evaluation = summary()
    assert evaluation.without_loops.num_rounds == 6
    assert evaluation.without_loops.accept_length == pytest.approx(1 + 8 / 6)
    assert evaluation.num_looping == 1
    assert any("1 of 4 answers repeat themselves, which flatters: without them 2.33" in doubt for doubt in evaluation.doubts)
    assert any("interval rests on 3 prompts" in doubt for doubt in evaluation.doubts)


def test_kinds_and_contexts_are_parts_of_the_whole():
    evaluation = summary()
    assert set(evaluation.by_kind) == {"chat", "code"}
    assert sum(figures.num_rounds for figures in evaluation.by_kind.values()) == 10
    assert {name: figures.num_rounds for name, figures in evaluation.by_context.items()} == {"1-128": 8, "257-512": 2}


def test_what_the_draft_vocabulary_costs():
    evaluation = summary()
    # five rounds of ten accepted all three drafts, so five rejected one
    assert evaluation.unknown_rejection_share == pytest.approx(1 / 5)
    assert evaluation.unknown_token_share == pytest.approx(4 / sum(item.num_answer_tokens for item in ANSWERS))


def test_nothing_to_judge_is_said_and_not_a_figure():
    evaluation = summary([answer("d", [])])
    assert evaluation.overall.accept_length is None
    assert evaluation.overall.joint == ()
    assert "no answer took a round" in evaluation.doubts[0]
    assert summary([]).unknown_token_share is None


def test_json_goes_both_ways_without_nan():
    for answers in (ANSWERS, [], [answer("d", [0])]):
        text = summary(answers).model_dump_json()
        assert "NaN" not in text
        assert Evaluation.model_validate_json(text) == summary(answers)


def test_a_gain_is_paired_by_prompt():
    better = [answer(item.prompt_id, [min(3, count + 1) for count in item.accepted]) for item in ANSWERS[:2]]
    gain = accept_length_gain(better, ANSWERS[:2], 3)
    assert gain.value == pytest.approx(13 / 6 - 8 / 6)
    assert math.isfinite(gain.low)
    with pytest.raises(AssertionError):
        accept_length_gain(better, ANSWERS[1:3], 3)


def test_acceptance_within_a_range_of_context():
    counts = acceptance_of([ANSWERS[0]], 3, range(11, 14))
    assert (counts.num_rounds, counts.num_accepted) == (2, 4)


@pytest.mark.parametrize(
    ("tokens", "looping"),
    [
        (list(range(100)), False),
        ([*range(30), *([7, 8, 9] * 20)], True),
        ([5] * 39, False),  # too short to accuse
        ([5] * 40, True),
        ([*([1, 2, 3, 4, 5] * 20), *range(100, 160)], False),  # it came out of it
        ([item for index in range(60) for item in (index % 4, 50, 51)], True),
    ],
)
def test_loops_in_tokens(tokens, looping):
    assert is_looping(tokens) is looping
