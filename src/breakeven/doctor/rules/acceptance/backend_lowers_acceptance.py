"""An attention backend accepts less than another on the same drafter.

Detects: two logs of servers with different attention backends of which one accepts less beyond noise; falling with the batch on
that one alone is the same fault seen twice.

Why it hurts: the drafter's extend or verify path of that backend computes something else: keys and values or masks of drafted
tokens are wrong for part of a batch. Text stays right, because the target checks every token.

Evidence: accept lengths by batch in both; what the banners say was launched differently.

Remedy: the other backend (SGLang --attention-backend, vLLM --attention-backend or VLLM_ATTENTION_BACKEND), or a release in which it
is mended.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import lower_of
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

CODE = "accept-lengths-differ"
BACKEND = "attention_backend"
HELD_BY_FALL = "accept-length-falls-with-batch"


def check(evidence: Evidence) -> Iterator[Told]:
    readings = evidence.readings
    assert readings is not None
    falling = {one.source for one in readings.readings if any(finding.code == HELD_BY_FALL for finding in one.findings)}
    for comparison in readings.comparisons:
        differ = next((finding for finding in comparison.findings if finding.code == CODE), None)
        backends = [text for text in comparison.settings if BACKEND in text.partition(":")[0]]
        if differ is None or not backends:
            continue
        lower = lower_of(comparison)
        if lower is None:
            continue
        alone = len(backends) == len(comparison.settings)
        also_falls = lower in falling and len(falling) == 1
        yield Fault(
            severity="error" if also_falls or alone else "warning",
            confidence="high" if also_falls and alone else "medium",
            title=f"The attention backend of {lower} accepts less ({'; '.join(backends)})"
            + (", and falls with the batch, which the other does not" if also_falls else ""),
            evidence=(
                *differ.evidence,
                *(() if alone else ("other settings differ too, and prompts may",)),
            ),
            remedy=f"Serve with the other backend, or upgrade the one of {lower}: the fault is in its draft or verify path.",
            symptoms=both("engines-differ"),
            also=("falls-with-batch",) if also_falls else (),
        )
