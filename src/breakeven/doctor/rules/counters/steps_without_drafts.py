"""Part of the decode steps carry no drafts.

Detects: fewer drafts than decode steps, by the tokens that were generated.

Why it hurts: vLLM divides its accept length by the steps that carried drafts only, so the printed figure flatters; speed goes by
all steps.

Evidence: drafts, accepted tokens and generated tokens of the same stretch.

Remedy: judge by the length over all steps. With a drafter model it means that speculation is off part of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "steps-without-drafts"):
        yield seen(source, finding, "nothing")
