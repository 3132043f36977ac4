"""SGLang admits at most 48 requests once it speculates.

Detects: speculation without --max-running-requests.

Why it hurts: the flag's default is 48 with any speculative algorithm (32 up to 0.4.4), and as many as memory holds without. Above
that, requests wait in the queue, and a comparison with the plain server measures the queue.

Evidence: the launch command has no such flag; the log says "Max running requests is reset to 48 for speculative decoding".

Remedy: set --max-running-requests on both servers that are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.version_facts import admission_defaults, admission_flag


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if not launch.speculates or launch.max_running or launch.engine != "sglang" or not launch.is_whole:
        return
    caps = sorted({row.speculative_cap for row in admission_defaults(launch.engine, evidence.version) if row.speculative_cap})
    if not caps:
        return
    flag = admission_flag(launch.engine)
    yield Fault(
        severity="warning",
        confidence="high",
        title=f"Without {flag}, SGLang admits {' or '.join(map(str, caps))} requests when it speculates, however many come",
        evidence=(f"launch command: no {flag}, {launch.method}",),
        remedy=f"Set {flag} to what you serve, the same on the server without speculation.",
        symptoms=Symptoms(vllm="nothing", sglang="queueing"),
    )
