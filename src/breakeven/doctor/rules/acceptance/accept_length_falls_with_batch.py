"""The accept length falls with the number of running requests.

Detects: lower accept lengths at larger running batches, within a log, between logs of servers launched alike, or between the loads
of a run, beyond what runs of the same thing differ by.

Why it hurts: at temperature 0 what is accepted does not depend on who else runs. A backend or graph of the drafter computes
something else at larger batches, so speculation gets worse where it matters.

Evidence: accept lengths by running batch, with their uncertainty. A difference below 0.05 or 2.5 % is noise.

Remedy: another attention backend, or an upgrade; without CUDA graphs to tell the two apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.observed import Observation
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Seen, Told
from breakeven.readers.effects import judge

REFUTES = ("The drafter's training, or the target's quantization: both are the same at every batch, and small ones accept more.",)
# Loads of a closed loop on other prompts differ by more than noise of the server does.
APART = 1.5


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "accept-length-falls-with-batch", "accept-length-may-fall-with-batch"):
        refutes = REFUTES if finding.severity != "info" else ()
        yield seen(source, finding, "falls-with-batch", refutes=refutes)
    servers: dict[object, list[Observation]] = defaultdict(list)
    for one in evidence.observed:
        if one.running is not None and (one.least is not None or one.settings):
            alike = one.group if one.least is not None else (one.engine, one.version, *sorted(one.settings.items()))
            servers[alike].append(one)
    for found in servers.values():
        yield from _between_loads(sorted(found, key=lambda one: one.running or 0.0))


def _between_loads(found: list[Observation]) -> Iterator[Told]:
    if len(found) < 2:
        return
    first = found[0]
    lower = [
        one
        for one in found[1:]
        if (one.running or 0.0) >= APART * (first.running or 1.0)
        and one.accept_length < first.accept_length
        and judge(first.level, one.level) == "effect"
    ]
    if not lower:
        return
    worst = min(lower, key=lambda one: one.accept_length)
    yield Seen(
        sign="falls-with-batch",
        severity="warning",
        confidence="medium",
        title=f"Accept length falls with the running batch: {first.accept_length:.2f} at {first.running:.0f}, "
        f"{worst.accept_length:.2f} at {worst.running:.0f}",
        evidence=tuple(str(one) for one in found),
        remedy="With the same prompts it must not. Serve them with another attention backend, then without CUDA graphs, and "
        "compare; take the other backend or upgrade. If the loads drew different prompts, give all of them the same.",
        refutes=REFUTES,
    )
