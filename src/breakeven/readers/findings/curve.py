"""Faults that show in the level of acceptance and in its curve over positions: floor, ceiling, positions that are dead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from breakeven.findings import Finding
from breakeven.readers.study import Study

__all__ = ["ceiling", "curve", "dead_positions", "floor"]

# Accepted drafts a round below which a drafter supplies nothing: random heads reach a few in a thousand.
FLOOR_ACCEPTED = 0.02
CEILING_SHARE = 0.995
# A position counts as dead where chance would leave it empty less often than this.
DEAD_CHANCE = 1e-3
# No real drafter loses more than this from one position to the next, so at least so much is expected.
LEAST_CONDITIONAL = 0.1

_FLOOR_REMEDY = (
    "A wiring fault and not weak training or quantization, which lower acceptance but never to nothing. Check in this order: the "
    "method (an EAGLE-3 head served as EAGLE), the auxiliary layers the log says are in use against those the head was trained on, "
    "d2t present and stored as offsets, tensor names that were skipped while loading, the drafter's own quantization."
)


def curve(one: Study) -> Iterator[Finding]:
    if not one.overall.num_lines:
        return
    mean = one.overall.mean
    section = one.section
    if section.position_rounds > 0 and not one.follows_batch:
        joint = [total / section.position_rounds for total in section.positions]
        yield from dead_positions(joint, section.position_rounds, "printed per-position rates, weighted by drafts")
    if (finding := floor(mean, one.overall.rounds, f"mean of {one.overall.num_lines} lines")) or (
        one.num_drafted
        and (finding := ceiling(mean, one.num_drafted, float(np.nanmin(one.lengths)), f"{one.overall.num_lines} lines"))
    ):
        yield finding


def floor(accept_length: float, rounds: float, source: str) -> Finding | None:
    if not accept_length - 1.0 < FLOOR_ACCEPTED:
        return None
    few = rounds < 100
    return Finding(
        code="accept-length-at-floor",
        severity="error",
        confidence="medium" if few else "high",
        title=f"Accept length {accept_length:.2f}: no draft is ever accepted, the drafter only costs time.",
        evidence=(f"accept length {accept_length:.3f}, {source}, about {rounds:.0f} rounds; 1.00 is the least there can be",),
        remedy=_FLOOR_REMEDY,
    )


def ceiling(accept_length: float, num_drafted: int, least: float, source: str) -> Finding | None:
    """Every draft accepted on every line: degenerate output, copied text or acceptance that was forced."""
    most = num_drafted + 1
    if accept_length < 1.0 + CEILING_SHARE * num_drafted or least < 1.0 + 0.95 * num_drafted:
        return None
    return Finding(
        code="accept-length-at-ceiling",
        severity="error",
        confidence="medium",
        title=f"Accept length {accept_length:.2f} of at most {most}: every draft is accepted, which no drafter does on real text.",
        evidence=(f"mean {accept_length:.3f}, least {least:.2f}, most possible {most} ({num_drafted} drafts a round), {source}",),
        remedy="Read some of the output: NaN logits and endless repetition look like this, as do random prompts and forced "
        "acceptance (synthetic, SGLANG_SIMULATE_ACC_LEN). Do not judge speed by these lines.",
    )


def dead_positions(joint: Sequence[float], rounds: float, source: str) -> Iterator[Finding]:
    """Exact zeros from some position on, where even a poor head would have left traces (rates are joint)."""
    # rates are printed with three decimals: below half of the last one a zero is no zero
    alive = next((place for place, rate in enumerate(joint) if rate < 0.0005), len(joint))
    if alive == 0 or alive == len(joint) or max(joint[alive:]) >= 0.0005:
        return
    conditional = joint[alive - 1] / (joint[alive - 2] if alive > 1 else 1.0)
    expected_rate = joint[alive - 1] * max(LEAST_CONDITIONAL, 0.5 * conditional)
    expected = expected_rate * rounds
    if expected_rate < 0.001 or math.exp(-expected) > DEAD_CHANCE:
        return
    only_first = alive == 1
    which = "Only position 0 is ever right" if only_first else f"Only positions 0 to {alive - 1} are ever right"
    wasted = len(joint) - alive
    yield Finding(
        code="only-first-position-alive" if only_first else "positions-dead",
        severity="error",
        confidence="high",
        title=f"{which}: the {wasted} after are never accepted. A serving fault, not a weak drafter.",
        evidence=(
            f"per position {', '.join(f'{rate:.3f}' for rate in joint[:8])}{', ...' if len(joint) > 8 else ''} ({source})",
            (
                f"{rounds:.0f} drafts; position {alive} would have been right at least {expected:.0f} times if acceptance "
                f"fell as a weak "
                "head's does, by a factor from position to position"
            ),
        ),
        remedy="Look at what later draft steps are fed: positions, attention mask, the hidden state handed on. Replay the head "
        "offline on the same text: if it is right there beyond this position, the engine is at fault. More training does not help, "
        "and quantization of the target lowers all positions instead of ending them. Until then draft "
        f"{alive} token{'s' if alive > 1 else ''} a round: the others are wasted.",
    )
