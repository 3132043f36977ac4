"""How much of the cost of a round are collectives cannot be told from here.

Detects: rounds that cost too much on a server with tensor parallelism over four devices or more.

Why it hurts: every layer of the verification and of each draft step waits for its all-reduces. Without fast links between the
devices they can be half of a step (reported: 51 % on eight devices over PCIe), and draft steps are too small to hide them.

Evidence: the size of the tensor parallelism; the measured cost of a round.

Remedy: a profile of some rounds (breakeven profile records it) tells; then a smaller tensor parallelism of the drafter, or fewer
drafts.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.baseline import dear_rounds
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import CannotDecide, Told

MANY_DEVICES = 4


def check(evidence: Evidence) -> Iterator[Told]:
    dear, devices, source = dear_rounds(evidence), *_devices(evidence)
    if not dear or devices < MANY_DEVICES:
        return
    yield CannotDecide(
        question=f"How much of a round's cost are the collectives of {devices} devices?",
        evidence=(source, str(dear[0])),
        provide="a profile of a few rounds: breakeven profile records one",
    )


def _devices(evidence: Evidence) -> tuple[int, str]:
    if evidence.launch is not None and evidence.launch.tensor_parallel > 1:
        return evidence.launch.tensor_parallel, f"launch: tensor parallelism {evidence.launch.tensor_parallel}"
    stated = evidence.log_facts.get("tensor_parallel")
    if type(stated) is int:
        return stated, f"log: tensor parallelism {stated}"
    run = evidence.run
    widest = max((arm.tensor_parallel for arm in run.record.arms), default=1) if run is not None else 1
    return widest, f"run: tensor parallelism {widest}"
