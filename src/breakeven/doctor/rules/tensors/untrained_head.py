"""The head was never trained.

Detects: norms that are all exactly one, and matrices whose rows look as they were initialised, throughout.

Why it hurts: its drafts are noise, and none is accepted. With forced acceptance that does not matter: such heads measure what a
round costs before anybody trains one. Served for itself, it is the reason for an accept length of 1.00.

Evidence: norm weights; the lengths of rows and the shape of their distribution.

Remedy: serve it with forced acceptance only, or put the trained weights in its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.weights import is_untrained

FLOOR = 1.05


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3" or not is_untrained(draft):
        return
    measured = evidence.readings.readings if evidence.readings is not None else ()
    lengths = [one.acceptance.accept_length for one in measured if one.acceptance is not None]
    at_floor = any(length is not None and length < FLOOR for length in lengths)
    yield Fault(
        severity="error" if at_floor else "info",
        confidence="high" if at_floor else "medium",
        title="Every weight of the head is as it was initialised: it was never trained, and its drafts are noise",
        evidence=("all norm weights are exactly 1", "the rows of all matrices are equally long, as independent draws are"),
        remedy="Serve it with forced acceptance only (that is what such heads are for), or put the trained weights in its place.",
        symptoms=both("floor"),
    )
