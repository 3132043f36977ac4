"""CUDA graphs are switched off.

Detects: --enforce-eager, --disable-cuda-graph or a graph backend of "disabled" on a server that speculates.

Why it hurts: a round launches the kernels of several draft steps and of the verification one by one. Drafting is latency-bound,
so it is hit harder than plain decoding: acceptance is fine, the speedup is not.

Evidence: the flag.

Remedy: remove it, on both servers that are compared. On CPUs it is right, and no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

_FLAGS = ("--enforce-eager", "--disable-cuda-graph")


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if not launch.speculates or launch.flag("--device").value == "cpu":
        return
    found = next((launch.flag(name) for name in _FLAGS if launch.flag(name)), launch.flag("--cuda-graph-backend-decode"))
    draft_only = launch.spec("enforce_eager")
    if draft_only.value in (True, "true", "True"):
        found = draft_only
    if not found or (found.name == "--cuda-graph-backend-decode" and found.value != "disabled"):
        return
    yield Fault(
        severity="warning",
        confidence="high",
        title="CUDA graphs are off, so each draft step pays the launch of its kernels",
        evidence=(str(found),),
        remedy=f"Remove {found.name}, on the baseline too. (On a CPU it belongs there.)",
        symptoms=both("cost"),
    )
