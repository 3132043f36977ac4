"""The batch is so large that verified tokens are no longer free.

Detects: rounds that cost too much at a batch whose verified tokens exceed what a GPU computes while it reads the weights once.

Why it hurts: at small batches a step waits for memory, and more tokens in it cost little. From some hundred tokens on it waits
for arithmetic, and each drafted token costs what a token costs, accepted or not.

Evidence: running requests x (drafts + 1) against the tokens at which such GPUs change over (about 300 for 16-bit weights).

Remedy: fewer drafts at this load, none at the largest: a schedule by batch (breakeven schedule).
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.baseline import dear_rounds
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

# 16-bit operations a byte of memory traffic, of the data-centre GPUs in use: 200 (A100) to 300 (H100) and more.
TOKENS_AT_BALANCE = 300


def check(evidence: Evidence) -> Iterator[Told]:
    for one in dear_rounds(evidence):
        if one.running is None or one.num_drafted is None:
            continue
        verified = one.running * (one.num_drafted + 1)
        if verified <= TOKENS_AT_BALANCE:
            continue
        yield Fault(
            severity="warning",
            confidence="medium" if verified > 2 * TOKENS_AT_BALANCE else "low",
            title=f"{one.where}: a round verifies {verified:.0f} tokens, more than are nearly free",
            evidence=(f"{one.running:.0f} requests x {one.num_drafted + 1} tokens; about {TOKENS_AT_BALANCE} are", str(one)),
            remedy="Draft less as the batch grows, and nothing at the largest: breakeven schedule prints the table for the engine.",
            symptoms=both("cost"),
        )
