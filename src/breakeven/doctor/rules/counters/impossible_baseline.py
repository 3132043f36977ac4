"""The baseline is slower than it can be.

Detects: a run, or two logs of which one has no drafts, in which a round seems to cost less than a plain step:
accept length over speedup below 0.97 with its whole interval.

Why it hurts: a round does what a plain step does, and more. If it seems cheaper, the baseline was measured in a worse state, or
the accept length counts something else: the speedup is not to be had.

Evidence: accept length, speedup and their ratio.

Remedy: measure the baseline again, alternating with the other arm, on a quiet machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.doctor.baseline import against_baseline
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told

ENOUGH_LAUNCHES = 3


def check(evidence: Evidence) -> Iterator[Told]:
    for one in against_baseline(evidence):
        if one.cost.high >= IMPOSSIBLE_BELOW:
            continue
        yield Seen(
            sign="impossible-baseline",
            severity="error",
            confidence="high" if one.num_launches >= ENOUGH_LAUNCHES else "medium",
            title=f"{one.where}: a round seems to cost {one.cost.value:.2f} plain steps, which cannot be",
            evidence=(str(one),),
            remedy="Look for what slows plain decoding only (graphs not captured, other flags, another process on the machine); "
            "measure the baseline again, in alternation with this arm. Do not quote this speedup.",
            refutes=("A drafter that is this good: accept length bounds the speedup, whatever the drafter.",),
        )
