"""The same drafter is accepted differently by two servers.

Detects: two logs whose accept lengths differ beyond noise at equal running batches; arms of a run that serve one drafter with
equally many drafts on different engines or with different flags.

Why it hurts: what is accepted depends on the drafter and the traffic alone. Where engines, releases or backends differ, one of
them computes something else.

Evidence: accept lengths at equal batches; settings that differ in the banners.

Remedy: the better of the two, or an upgrade of the other; check that both saw the same prompts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Seen, Told
from breakeven.engines.base import Arm
from breakeven.readers.effects import judge

REFUTES = ("The drafter's training: the same head does better on the other server, if both saw the same prompts.",)


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "accept-lengths-differ"):
        if evidence.has_collapse:
            break  # one server that changes, which says more than a difference of two
        refutes = REFUTES if finding.severity != "info" else ()
        yield seen(source, finding, "engines-differ", refutes=refutes)
    if evidence.run is not None:
        yield from _arms(evidence)


def _arms(evidence: Evidence) -> Iterator[Told]:
    run = evidence.run
    assert run is not None
    here = {one.source: one for one in evidence.observed if one.least is not None}
    pairs = [pair for pair in itertools.combinations(run.record.arms, 2) if _is_same_drafter(*pair)]
    for one, other in pairs:
        for load in run.record.loads:
            mine, theirs = here.get(f"{one.name} at {load.label}"), here.get(f"{other.name} at {load.label}")
            if mine is None or theirs is None or judge(mine.level, theirs.level) != "effect":
                continue
            worse, better = sorted((mine, theirs), key=lambda seen_one: seen_one.accept_length)
            yield Seen(
                sign="engines-differ",
                severity="warning",
                confidence="medium",
                title=f"One drafter, two accept lengths at {load.label}: {better.accept_length:.2f} in {better.group}, "
                f"{worse.accept_length:.2f} in {worse.group}",
                evidence=(str(better), str(worse), f"{one.name}: {_served(one)}", f"{other.name}: {_served(other)}"),
                remedy=f"What {worse.group} is launched with differently is at fault: change one thing at a time.",
                refutes=REFUTES,
            )


def _is_same_drafter(one: Arm, other: Arm) -> bool:
    mine, theirs = one.speculation, other.speculation
    return (
        mine is not None
        and theirs is not None
        and not (one.forced or other.forced)
        and mine.drafter is not None
        and (mine.drafter, mine.num_draft_tokens, mine.topk) == (theirs.drafter, theirs.num_draft_tokens, theirs.topk)
        and _served(one) != _served(other)
    )


def _served(arm: Arm) -> str:
    return " ".join((arm.engine, arm.engine_version or "", arm.dtype, *arm.extra_flags)).strip()
