from __future__ import annotations

import pytest

from breakeven.drafter.serving.forced import ForcedAcceptance
from breakeven.errors import UsageError


def test_a_slots_mean_is_exact_and_its_rounds_differ_by_one_at_most() -> None:
    forced = ForcedAcceptance(2.3, num_draft_tokens=3, num_slots=4)
    for slot in range(4):
        accepted = [forced.accepted(slot, 3) for _ in range(100)]
        assert abs(sum(accepted) - 130) <= 1
        assert set(accepted) == {1, 2}


def test_what_was_owed_for_want_of_drafts_is_made_up_for_by_one_round_at_most() -> None:
    forced = ForcedAcceptance(2.0, num_draft_tokens=3, num_slots=1)
    assert [forced.accepted(0, 0) for _ in range(10)] == [0] * 10
    assert [forced.accepted(0, 3) for _ in range(5)] == [3, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("length", "num_drafts", "message"), [(5.1, 4, "expected 1 to 5"), (0.9, 4, "1 to 5"), (1.0, 0, "a drafter")]
)
def test_what_cannot_be_served(length: float, num_drafts: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ForcedAcceptance(length, num_draft_tokens=num_drafts, num_slots=1)
