"""The server accepts to order.

Detects: vLLM's rejection_sample_method "synthetic" or SGLang's SGLANG_SIMULATE_ACC_LEN in the launch, its environment or a banner.

Why it hurts: such a server measures what a round costs, whatever the drafter says. Its accept length says nothing about the
drafter, and its text is junk.

Evidence: the flag or variable.

Remedy: remove it to measure acceptance; keep it to measure costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    if evidence.forced_by:
        yield Fault(
            severity="warning",
            confidence="high",
            title="Acceptance is forced: the accept length says nothing about the drafter, and was not judged",
            evidence=evidence.forced_by,
            remedy="Remove it to see what the drafter does; with it, only the cost of a round is measured.",
        )
