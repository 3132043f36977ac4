"""What the counts of an arm whose number of drafts follows the batch say, and what they do not.

While c clients ask, other batches than c run too: a request ends, the batch is one smaller until the next is admitted, and rounds
with that batch's number of drafts come in between. vLLM and the embedded engine count drafts as they were. SGLang counts every
decode step as a round, without drafts or with however many, and takes the number it was started with for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Speculation
from breakeven.loadgen.samples import LoadPoint

__all__ = ["as_scheduled", "off_schedule", "tells_drafts"]

# Counts steps as rounds whatever they drafted (managers/tokenizer_manager.py up to 0.5.23).
_COUNTS_NO_DRAFTS = "sglang"
# Mean drafts of a round may be so far from the number asked for, relative to it, and still be rounds of that number.
_OFF_BY = 0.05


def as_scheduled(counts: Acceptance, arm: Arm, load: LoadPoint) -> Acceptance:
    """`counts` of a window of `arm`, without what a schedule makes meaningless.

    Acceptance by position is left for the positions that every round reached, as a position that only some rounds drafted would
    read as one that is seldom accepted. Drafts are set to 0 (not counted) where they are not told.
    """
    speculation = arm.speculation
    if speculation is None or not speculation.schedule:
        return counts
    numbers = _numbers(arm, speculation, load)
    if tells_drafts(arm, load) and arm.engine != _COUNTS_NO_DRAFTS:
        # a step without drafts is no round
        reached = min(numbers - {0}, default=0)
        return replace(counts, accepted_per_position=counts.accepted_per_position[:reached])
    if tells_drafts(arm, load):
        (always,) = numbers
        num_rounds = counts.num_steps if always else 0
        return replace(
            counts,
            num_rounds=num_rounds,
            num_drafted=num_rounds * always,
            accepted_per_position=counts.accepted_per_position[:always],
        )
    return replace(
        counts,
        num_rounds=counts.num_steps if _drafts_there(speculation, load) else 0,
        num_drafted=0,
        accepted_per_position=counts.accepted_per_position[: min(numbers)],
    )


def tells_drafts(arm: Arm, load: LoadPoint) -> bool:
    """Whether it is known how many drafts the rounds of `arm` had: its server counts them, or no other number was possible."""
    if arm.speculation is None or not arm.speculation.schedule or arm.engine != _COUNTS_NO_DRAFTS:
        return True
    return len(_numbers(arm, arm.speculation, load)) == 1


def off_schedule(counts: Acceptance, arm: Arm, load: LoadPoint) -> str:
    """Why the rounds of a scheduled `arm` cannot be taken for rounds of the number of drafts at this load; empty where they can.

    counts: as `as_scheduled` leaves them.
    """
    speculation = arm.speculation
    if speculation is None or not speculation.schedule or load.concurrency is None:
        return ""
    if not tells_drafts(arm, load):
        return "its number of drafts changes with the batch, and its server does not tell how many each round had"
    asked = speculation.drafts_at(load.concurrency)
    if not counts.num_rounds or not asked:
        return ""
    mean = counts.num_drafted / counts.num_rounds
    return f"its rounds had {mean:.2f} drafts on average, not {asked}" if abs(mean / asked - 1) > _OFF_BY else ""


def _drafts_there(speculation: Speculation, load: LoadPoint) -> bool:
    return load.concurrency is None or speculation.drafts_at(load.concurrency) > 0


def _numbers(arm: Arm, speculation: Speculation, load: LoadPoint) -> set[int]:
    """Every number of drafts that a round at this load can have had."""
    largest = min(load.concurrency or arm.max_running_requests, arm.max_running_requests)
    if arm.engine == _COUNTS_NO_DRAFTS and largest > 8:
        # it looks the batch up after padding it to the next recorded graph, which beyond 8 is up to a quarter larger
        largest += largest // 4
    return {speculation.drafts_at(batch) for batch in range(1, largest + 1)}
