"""Answers and their states against plain greedy decoding."""

from __future__ import annotations

import pytest

from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.evaluation import preparing
from breakeven.drafter.evaluation.preparing import greedy_answers, prepare
from breakeven.drafter.evaluation.prompts import RenderedPrompt
from breakeven.drafter.reference.decoding import greedy
from breakeven.errors import UsageError

PROMPTS = [
    RenderedPrompt(prompt_id=str(index), kind="x", token_ids=token_ids)
    for index, token_ids in enumerate([(5, 40, 7), (12,), (3, 3, 60, 61, 62, 70, 8, 9), (88, 11)])
]


def test_answers_stop_where_the_target_stops_and_go_on_beyond(make_target, load_target):
    folder = make_target()
    config, weights = load_target(folder)
    plain = [greedy(list(prompt.token_ids), 30, config, weights) for prompt in PROMPTS]
    stop = plain[0][5]  # some token that the first answer says
    answers = greedy_answers(folder, PROMPTS, max_tokens=20, num_draft_tokens=4, stop_ids=[stop])
    assert [answer.prompt_id for answer in answers] == ["0", "1", "2", "3"]
    for answer, tokens in zip(answers, plain, strict=True):
        end = tokens.index(stop) + 1 if stop in tokens[:20] else 20
        assert list(answer.answer_ids) == tokens[:end]
        assert list(answer.beyond_ids) == tokens[end : end + 3]
        assert answer.finished is (stop in tokens[:20])
    assert answers[0].finished
    held_out = prepare(answers, Capture.from_folder(folder, (1, 2, 3)))
    assert len(held_out.states) == 1
    assert sum(int(pack.starts[-1]) for pack in held_out.states) == sum(len(answer.token_ids) for answer in answers)
    marked = [bool(mark) for pack in held_out.states for mark in pack.loss_mask]
    assert sum(marked) == sum(len(answer.answer_ids) for answer in answers)


def test_one_draft_a_round_needs_nothing_beyond(make_target):
    answers = greedy_answers(make_target(), PROMPTS, max_tokens=5, num_draft_tokens=1, stop_ids=())
    assert all(answer.beyond_ids == () for answer in answers)
    assert not any(answer.finished for answer in answers)


def test_how_far_it_is_is_told_now_and_then(make_target, monkeypatch):
    monkeypatch.setattr(preparing, "TELL_EVERY_S", 0.0)
    told = []
    greedy_answers(make_target(), PROMPTS, max_tokens=5, num_draft_tokens=3, stop_ids=(), told=told.append)
    assert told == [f"{done} of 4 prompts answered" for done in (1, 2, 3, 4)]  # too few for a pace


def test_an_answer_at_the_end_of_the_context_is_refused(make_target):
    folder = make_target(max_position_embeddings=12)
    with pytest.raises(UsageError, match="1 answers reach the end of the target's context"):
        greedy_answers(folder, PROMPTS, max_tokens=3, num_draft_tokens=4, stop_ids=())
