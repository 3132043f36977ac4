"""Hardly any draft is accepted.

Detects: an accept length above 1.02 and below 1.3 with three drafts a round or more (1.2 with two).

Why it hurts: as at the floor, a round costs more than it yields. Heads with a wrong vocabulary map or wrong layers still guess a
token now and then; even heads trained on 5000 samples reach about 1.5.

Evidence: the accept length and how many rounds it rests on.

Remedy: look for a wiring fault first, as if nothing were accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.suspicions import not_quantization
from breakeven.doctor.told import Seen, Told
from breakeven.readers.findings.curve import FLOOR_ACCEPTED


def check(evidence: Evidence) -> Iterator[Told]:
    for one in evidence.observed:
        if one.accept_length < 1.0 + FLOOR_ACCEPTED or not one.is_near_floor or not one.is_enough or evidence.has_collapse:
            continue
        if any(rate >= 0.0005 for rate in one.joint[:1]) and one.joint[1:] and not any(rate >= 0.0005 for rate in one.joint[1:]):
            continue  # one position is fine and the others dead: another sign
        yield Seen(
            sign="floor",
            severity="warning",
            confidence="medium",
            title=f"{one.source}: accept length {one.accept_length:.2f}, less than even weak heads reach",
            evidence=(f"{one.source}: {one.accept_length:.3f} over about {one.level.rounds:.0f} rounds",),
            remedy="Look for a wiring fault first: the map of the vocabulary, the auxiliary layers, dropped tensors.",
            refutes=not_quantization(evidence, f"an accept length of {one.accept_length:.2f}"),
        )
