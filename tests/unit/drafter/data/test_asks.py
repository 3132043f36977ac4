"""Which answers are wanted."""

from __future__ import annotations

import pytest
from tests.unit.drafter.data.conftest import prompts

from breakeven.drafter.data.asks import AnswerSettings, wanted_answers
from breakeven.errors import UsageError


def test_a_prompt_is_answered_greedily_once_at_most() -> None:
    records = prompts(300)
    asks = wanted_answers(records, AnswerSettings(samples_per_prompt=4, greedy_share=0.5))
    assert len({ask.id for ask in asks}) == len(asks) == 1200
    greedy = [ask for ask in asks if ask.sampling.temperature == 0]
    assert len(greedy) == len({ask.prompt.id for ask in greedy}) == 300
    none = wanted_answers(records, AnswerSettings(greedy_share=0.0))
    assert all(ask.sampling.temperature > 0 for ask in none)
    with pytest.raises(UsageError, match="all equal"):
        AnswerSettings(samples_per_prompt=2, greedy_share=1.0)
