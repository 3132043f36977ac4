"""The training log promises too little to serve the drafter.

Detects: a simulated accept length (tau) in a training log, or accuracies of its draft steps, below what deployments need to break
even.

Why it hurts: tau is 1 plus the sum of the products of the steps' accuracies: tokens a round, the bonus included, if serving were as
the training data. So 1.28 is 0.28 accepted drafts a round, not 128 % of anything. A round costs at least a quarter more than a
plain step on the best deployments, so an accept length below 1.25 loses everywhere.

Evidence: the last figures of the log; held-out ones where there are any.

Remedy: train on, or mend the data (answers of the served target, loss mask, template); do not serve it yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import CannotDecide, Fault, Told
from breakeven.doctor.training_log import promised_length

# The cheapest rounds on record: a dense 70B target at its best load. What lies a little above pays nowhere for certain either.
LEAST_BREAK_EVEN = 1.25
MARGIN = 0.05
USUAL_BREAK_EVEN = 1.5


def check(evidence: Evidence) -> Iterator[Told]:
    promised = promised_length(evidence.training)
    if promised is None:
        yield CannotDecide(
            question="Does this training suffice? Accuracies of single drafts do not give an accept length",
            evidence=tuple(f"training log: {name} = {value:g}" for name, value in list(evidence.training.items())[:6]),
            provide="the accuracy of each draft step, the simulated accept length (tau), or the head for breakeven eval",
        )
        return
    if promised.length >= USUAL_BREAK_EVEN:
        return
    hopeless = promised.length < LEAST_BREAK_EVEN + MARGIN
    others = [f"{name} = {value:g}" for name, value in evidence.training.items() if name not in promised.names]
    yield Fault(
        severity="error" if hopeless else "warning",
        confidence="high" if hopeless and promised.is_stated else "medium",
        title=f"Training promises about {promised.length - 1:.2f} accepted drafts a round, "
        + ("which pays nowhere" if hopeless else "less than most deployments need"),
        evidence=(f"training log: {promised.text}", *others[:4]),
        remedy="Keep training or mend the data; do not serve it. Break-even accept lengths begin at about "
        f"{LEAST_BREAK_EVEN}, {USUAL_BREAK_EVEN} to 2.3 are usual: measure yours with forced acceptance (breakeven bench).",
        symptoms=both("all-positions-lower"),
        also=("floor",) if hopeless else (),
    )
