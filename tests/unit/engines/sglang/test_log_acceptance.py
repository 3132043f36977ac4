"""Accept length from the decode lines of a window, as releases without counters print them."""

from __future__ import annotations

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.registry import get_engine

SGLANG = get_engine("sglang")
ARM = Arm(name="a", engine="sglang", speculation=Speculation(method="eagle3", num_draft_tokens=3))
# 0.5.2, 0.5.4 and 0.5.8 in turn
HEAD, TAIL = "#token: 70, token usage: 0.01, accept len:", "cuda graph: True, gen throughput (token/s): 90.00, #queue-req: 0, "
LINES = (
    f"[2025-09-11 10:00:00] Decode batch. #running-req: 1, {HEAD} 2.00, {TAIL}",
    f"[2025-10-11 10:00:00] Decode batch [12], #running-req: 3, {HEAD} 3.00, accept rate: 0.75, {TAIL}",
    "ut of its beginning #running-req: 9",
    "[2026-01-11 10:00:00] Prefill batch, #new-seq: 1, #new-token: 33, #cached-token: 0, token usage: 0.00, #running-req: 7, ",
)


def test_lines_are_weighted_by_what_ran() -> None:
    found = SGLANG.log_acceptance(ARM, LINES)
    assert found is not None
    assert found.accept_length == pytest.approx((1 * 2.0 + 3 * 3.0) / 4)
    assert (found.source, found.exact_steps, found.num_drafted) == ("log", False, 3 * found.num_steps)


def test_impossible_lengths_count_as_the_most_there_can_be_or_not_at_all() -> None:
    found = SGLANG.log_acceptance(
        ARM, ["Decode batch, #running-req: 1, accept len: 99.00,", "Decode batch, #running-req: 1, accept len: 0.50,"]
    )
    assert found is not None
    assert found.accept_length == 4.0


def test_nothing_said_is_nothing() -> None:
    assert SGLANG.log_acceptance(ARM, []) is None
    assert SGLANG.log_acceptance(ARM, LINES[2:]) is None
    assert SGLANG.log_acceptance(Arm(name="a", engine="sglang"), LINES) is None
    assert get_engine("vllm").log_acceptance(ARM, LINES) is None
