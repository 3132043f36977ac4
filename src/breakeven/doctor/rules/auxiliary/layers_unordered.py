"""Auxiliary layer ids that are not in ascending order, or repeat.

Detects: a list of ids in another order than the layers', or the same id twice.

Why it hurts: engines capture states as they pass the layers, so they arrive in layer order whatever the list says. A drafter
trained with another order gets its inputs exchanged, and a repeated id gives one state fewer than `fc` takes.

Evidence: the ids.

Remedy: if it was trained in layer order, sort the list; else the columns of fc have to be permuted with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import read_ids
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    assert evidence.draft is not None
    # a folder may say its ids once for each engine: that is one fault, of as many settings
    settings: dict[bool, list[str]] = {}
    for setting in evidence.draft.layer_ids:
        ids = read_ids(setting)
        if ids is not None and not all(one < other for one, other in pairwise(ids)):
            settings.setdefault(len(set(ids)) < len(ids), []).append(str(setting))
    for repeats, said in settings.items():
        yield Fault(
            severity="error" if repeats else "warning",
            confidence="high" if repeats else "medium",
            title="An auxiliary layer stands twice" if repeats else "The auxiliary layer ids are not in the order of the layers",
            evidence=tuple(said),
            remedy="Sort the ids if the drafter was trained on states in layer order; else permute the columns of fc with them.",
            symptoms=both("crash" if repeats else "floor"),
        )
