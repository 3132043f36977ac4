from __future__ import annotations

import pytest

from breakeven.engines.base import Counters
from breakeven.engines.foreign_traffic import foreign_traffic


def counters(generation_tokens: int, num_requests: int | None = None) -> Counters:
    return Counters(
        time_s=0.0, prompt_tokens=0, generation_tokens=generation_tokens, num_running=0, num_waiting=0, num_requests=num_requests
    )


@pytest.mark.parametrize(
    ("tokens", "requests", "complaint"),
    [
        (10_000, 50, None),
        (10_620, 50, None),  # 5 % and 4 requests of 32 tokens
        (10_629, 50, "629 tokens more than the 10000 asked for here"),
        (9_371, 50, "counted 9371 tokens where 10000 arrived"),
        (9_372, 50, None),
        (0, None, "a replica is missing"),
        (10_000, 60, None),
        (10_000, 61, "11 requests more than the 50 sent from here"),
        (10_000, None, None),
    ],
)
def test_only_what_the_edges_cannot_explain_is_foreign(tokens: int, requests: int | None, complaint: str | None) -> None:
    before = counters(500, None if requests is None else 7)
    after = counters(500 + tokens, None if requests is None else 7 + requests)
    found = foreign_traffic(before, after, own_tokens=10_000, own_finished=50, under_way=4.0)
    assert (found is None) == (complaint is None)
    assert (complaint or "") in (found or "")


def test_an_idle_window_still_has_an_allowance() -> None:
    assert foreign_traffic(counters(0), counters(32), own_tokens=0, own_finished=0, under_way=0.0) is None
    assert foreign_traffic(counters(0), counters(33), own_tokens=0, own_finished=0, under_way=0.0) is not None
