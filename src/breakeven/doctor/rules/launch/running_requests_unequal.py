"""The arms that are compared admit different numbers of requests.

Detects: another limit on running requests on the baseline than on the speculating arm.

Why it hurts: at the same offered load one arm queues what the other serves, so neither throughput nor latency compares like with
like.

Evidence: the two launch commands.

Remedy: the same --max-running-requests or --max-num-seqs on both.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch, baseline = evidence.launch, evidence.baseline
    assert launch is not None
    assert baseline is not None
    if not launch.max_running or not baseline.max_running or launch.max_running.value == baseline.max_running.value:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title=f"The baseline admits {baseline.max_running.value} requests, the speculating arm {launch.max_running.value}",
        evidence=(f"baseline, {baseline.max_running}", f"speculating, {launch.max_running}"),
        remedy=f"Give both the same {launch.max_running.name}.",
        symptoms=both("queueing"),
    )
