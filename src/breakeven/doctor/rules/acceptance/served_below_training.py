"""Serving accepts far less than the training log promises.

Detects: a training log's simulated accept length against the accept length of the server, at least a third of the promised drafts
missing.

Why it hurts: the head has learned; what differs is between training and serving: layers, norms, positions, the vocabulary map, the
template, or how the trainer counts (in-vocabulary tokens only, top-k hits).

Evidence: the two figures.

Remedy: replay the head offline on the target's own answers (breakeven eval): if it does there what training says, serving is at
fault, else the trainer's count is.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told
from breakeven.doctor.training_log import promised_length

MISSING = 1 / 3
# Training that promises no more than this explains a poor server by itself.
LEARNED = 1.5


def check(evidence: Evidence) -> Iterator[Told]:
    promised = promised_length(evidence.training)
    if promised is None or promised.length < LEARNED:
        return
    for one in evidence.observed:
        most = one.num_drafted + 1 if one.num_drafted is not None else None
        expected = min(promised.length, most) if most is not None else promised.length
        missing = 1 - (one.accept_length - 1) / (expected - 1)
        if not one.is_enough or missing < MISSING:
            continue
        yield Seen(
            sign="floor" if one.is_near_floor else "all-positions-lower",
            severity="error" if one.is_near_floor else "warning",
            confidence="medium",
            title=f"{one.source} accepts {one.accept_length - 1:.2f} drafts a round, training promises {expected - 1:.2f}",
            evidence=(str(one), f"training log: {promised.text}"),
            remedy="Replay the head offline (breakeven eval): if it reaches there what training says, look for the fault in "
            "serving (layers, norms, vocabulary map, template); else the trainer counts otherwise than engines do.",
            refutes=("Too little training: its own log says that the head has learned.",),
        )
