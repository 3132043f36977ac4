"""The four outcomes: a rounding error is not called a fault, a fault is not called rounding, and the rest is undecided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breakeven.verdict.equality.deciding import MIN_PROMPTS, Counts, decide

SAME = Counts(
    num_prompts=64,
    num_failed=0,
    num_degenerate=0,
    num_parted=0,
    num_far=0,
    plain_num_far=0,
    num_unknown=0,
    num_positions=4096,
    left_first=0,
    plain_left_first=0,
    far_first=0,
    plain_far_first=0,
    exact=False,
)
NEAR = replace(SAME, num_parted=30, left_first=25)
BLIND = replace(NEAR, num_unknown=30, far_first=None, plain_far_first=None)


@pytest.mark.parametrize(
    ("counts", "outcome", "says"),
    [
        (SAME, "equal", "at most 5 % of such prompts differ"),
        (replace(SAME, num_prompts=MIN_PROMPTS - 1), "undecided", "at least 8 are needed"),
        (replace(SAME, num_failed=8), "undecided", "8 of 72 prompts failed"),
        (replace(SAME, num_degenerate=33), "undecided", "loops hide differences"),
        # every difference is a near tie, however much more often than plain's own
        (NEAR, "numerics", "30 of 30 differences are near ties"),
        (replace(NEAR, num_prompts=28, num_parted=20), "undecided", "too few to tell"),
        # seven far differences against none of plain: one chance in 128
        (replace(NEAR, num_far=7, far_first=7), "fault", "p = 0.008"),
        (replace(NEAR, num_far=6, far_first=6), "undecided", "6 prompts part where plain clearly prefers"),
        (replace(NEAR, num_far=1, far_first=1), "undecided", "1 prompt parts where plain clearly prefers"),
        # plain itself does it as often: this deployment rounds coarsely
        (
            replace(NEAR, num_parted=60, num_far=20, plain_num_far=22, far_first=20, plain_far_first=22, left_first=30,
                    plain_left_first=30),
            "numerics", "at most 1.6 times as often",
        ),
        # without log-probabilities
        (BLIND, "undecided", "tells no log-probabilities"),
        (replace(BLIND, exact=True), "fault", "in float32, where ties are rare"),
        (replace(BLIND, num_parted=60, num_positions=500), "fault", "at least once in"),
        (replace(BLIND, left_first=10, plain_left_first=10), "undecided", "too few to tell"),
        (replace(BLIND, left_first=30, plain_left_first=32), "numerics", "at most 1.5 times as often"),
    ],
)  # fmt: skip
def test_outcomes(counts: Counts, outcome: str, says: str) -> None:
    decision = decide(counts)
    assert (decision.outcome, says in decision.reason) == (outcome, True), decision
    assert bool(decision.remedy) == (outcome in ("fault", "undecided"))
