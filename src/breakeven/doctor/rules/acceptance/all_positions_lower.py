"""Every position is accepted less often, all by about as much.

Detects: an accept length clearly below what this head is known to reach (--expect, its own record at export, published heads on
the same target, else the weakest published EAGLE-3 heads), while the curve over positions falls as a healthy one does; or two
readings of which one is lower at each position, given those before, by a similar share.

Why it hurts: one layer off, another template, precision, domain or too little training: the drafter works, and worse than it
could.

Evidence: the accept length against the expected one, the rates by position.

Remedy: layer ids and their convention, the chat template, the kind of traffic, the target's precision; then the data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expectation import expectation
from breakeven.doctor.observed import Observation
from breakeven.doctor.suspicions import not_quantization_by_loss
from breakeven.doctor.told import Seen, Told

# The same head on other prompts or another run differs by a few percent; 70 to 90 % of the card is the usual size of this sign.
CLEARLY_BELOW = 0.93
LOWER = 0.95
STANDARD_ERRORS = 3.0
ALIKE = 0.2
# A second position this much worse than the first, given it, is another sign.
STEEP = 0.5


def check(evidence: Evidence) -> Iterator[Told]:
    below = list(_below_expected(evidence))
    yield from below
    if not below:
        yield from _below_another(evidence)


def _below_expected(evidence: Evidence) -> Iterator[Told]:
    for one in evidence.observed:
        expected = expectation(evidence, one)
        if expected is None or not one.is_enough or one.is_near_floor or _is_steep(one.joint) or evidence.has_collapse:
            continue
        error = one.level.error if math.isfinite(one.level.error) else 0.0
        if one.accept_length + 2 * error >= CLEARLY_BELOW * expected.length:
            continue
        lost = 1 - (one.accept_length - 1) / (expected.length - 1)
        yield Seen(
            sign="all-positions-lower",
            severity="warning",
            confidence=expected.confidence,
            title=f"{one.source}: accept length {one.accept_length:.2f} is {100 * one.accept_length / expected.length:.0f} % of "
            f"the {expected.length:.2f} that such a head reaches",
            evidence=(str(one), f"expected: {expected.length:.2f} ({expected.source})", *_curve(one)),
            remedy="Check the layer ids and their convention, the norm flags, the chat template, the kind of traffic and the "
            "target's precision, in this order; then the training data. Drafting more tokens does not help.",
            refutes=not_quantization_by_loss(evidence, lost),
        )


def _is_steep(joint: Sequence[float]) -> bool:
    return len(joint) > 1 and joint[0] > 0 and joint[1] / joint[0] < STEEP * joint[0]


def _curve(one: Observation) -> Iterator[str]:
    if one.joint:
        yield f"by position: {', '.join(f'{rate:.3f}' for rate in one.joint[:8])}"


def _below_another(evidence: Evidence) -> Iterator[Told]:
    """Servers side by side; arms of a run may have different heads, and are compared by what each should reach."""
    told = [one for one in evidence.observed if len(one.joint) >= 2 and one.is_enough and one.least is None]
    for before, after in itertools.pairwise(told):
        better, worse = (before, after) if before.accept_length >= after.accept_length else (after, before)
        if not _all_lower(better, worse):
            continue
        yield Seen(
            sign="all-positions-lower",
            severity="warning",
            confidence="low",
            title=f"{worse.source} accepts less than {better.source} at every position",
            evidence=(
                *(f"{one.source}: {', '.join(f'{rate:.3f}' for rate in one.joint[:8])}" for one in (better, worse)),
                "a sign only if both served the same head on the same kind of prompts",
            ),
            remedy="Compare layer ids, chat template, kind of traffic and precision of the two.",
        )


def _all_lower(better: Observation, worse: Observation) -> bool:
    pairs = list(zip(_conditional(better.joint), _conditional(worse.joint), strict=False))
    if len(pairs) < 2 or any(one <= 0 or other <= 0 for one, other in pairs):
        return False
    reached = [
        ((1.0, *better.joint)[i] * better.level.rounds, (1.0, *worse.joint)[i] * worse.level.rounds) for i in range(len(pairs))
    ]
    for (one, other), (mine, theirs) in zip(pairs, reached, strict=True):
        error = math.sqrt(one * (1 - one) / max(mine, 1.0) + other * (1 - other) / max(theirs, 1.0))
        if other > LOWER * one or one - other < STANDARD_ERRORS * error:
            return False
    ratios = [other / one for one, other in pairs]
    return max(ratios) - min(ratios) < ALIKE


def _conditional(joint: Sequence[float]) -> list[float]:
    return [rate / before if before > 0 else 0.0 for before, rate in zip((1.0, *joint), joint, strict=False)]
