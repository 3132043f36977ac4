"""Where two answers part, in the best unit that both servers tell, and how near a tie that was."""

from __future__ import annotations

from breakeven.loadgen.answers import GreedyAnswer
from breakeven.verdict.equality.departure import Departure, departure


def answer(*tokens: str, **more: object) -> GreedyAnswer:
    alternatives = tuple(((token, -0.1), ("tie", -0.2), ("far", -5.0)) for token in tokens)
    return GreedyAnswer(**{"prompt_id": "p", "text": "".join(tokens), "tokens": tokens, "alternatives": alternatives, **more})


def test_the_same_answer() -> None:
    assert departure(answer("a", "b"), answer("a", "b")) == Departure(position=None, length=2)


def test_a_difference_has_the_margin_of_the_first_answers_server() -> None:
    found = departure(answer("a", "b", "c"), answer("a", "tie", "z"))
    assert (found.position, found.length, round(found.margin or 0, 6), found.at_least) == (1, 2, 0.1, False)
    assert round(departure(answer("a", "b"), answer("far", "b")).margin or 0, 6) == 4.9
    unknown = departure(answer("a"), answer("unheard of"))
    assert (round(unknown.margin or 0, 6), unknown.at_least) == (4.9, True)


def test_one_that_goes_on_differs_where_the_other_ended() -> None:
    found = departure(answer("a"), answer("a", "b"))
    assert (found.position, found.length, found.margin) == (1, 2, None)


def test_without_names_of_tokens_numbers_are_compared_then_characters() -> None:
    first, second = answer("a", "b", token_ids=(1, 2)), answer("a", "c", token_ids=(1, 3), tokens=(), alternatives=())
    assert departure(first, second) == Departure(position=1, length=2)
    plain_text = GreedyAnswer(prompt_id="p", text="abd")
    found = departure(answer("ab", "c", token_ids=(1, 2)), plain_text)
    assert found == Departure(position=2, length=3, in_tokens=False)


def test_tokens_that_read_alike_but_make_another_text() -> None:
    found = departure(answer("\ufffd", text="\u00e9"), answer("\ufffd", text="\u00e8"))
    assert (found.position, found.in_tokens) == (0, False)
