"""SGLang ignores a token map for EAGLE-3.

Detects: --speculative-token-map together with --speculative-algorithm EAGLE3.

Why it hurts: the flag belongs to EAGLE; with EAGLE3 the map comes from d2t in the checkpoint and the flag does nothing. A head
that was pruned to such a map without a d2t of its own drafts wrong tokens.

Evidence: the two flags.

Remedy: remove the flag; store the map in the drafter as d2t.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if launch.engine != "sglang" or launch.method.value != "EAGLE3" or not launch.flag("--speculative-token-map"):
        return
    yield Fault(
        severity="warning",
        confidence="high",
        title="--speculative-token-map does nothing with EAGLE3; the drafter's own d2t counts",
        evidence=(str(launch.flag("--speculative-token-map")), str(launch.method)),
        remedy="Remove the flag, and store the map in the drafter as d2t if it has none.",
        symptoms=Symptoms(vllm="nothing", sglang="nothing"),
    )
