"""Prompts or answers are not text.

Detects: trials of a run that were voided because answers repeat themselves or are empty.

Why it hurts: repetition is easy to draft and random tokens are not: acceptance and speed of such traffic say nothing of the real
one.

Evidence: the reasons with which the trials were voided.

Remedy: real prompts with the model's chat template; read some of the answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told


def check(evidence: Evidence) -> Iterator[Told]:
    run = evidence.run
    assert run is not None
    found = [(trial.arm, void.detail) for trial in run.record.trials for void in trial.voids if void.code == "degenerate_output"]
    if not found:
        return
    arms = sorted({arm for arm, _ in found})
    plain = {arm.name for arm in run.record.arms if arm.speculation is None}
    yield Seen(
        sign="degenerate-output",
        severity="warning",
        confidence="high" if set(arms) & plain else "medium",
        title=f"{len(found)} trials of {', '.join(arms)} gave degenerate answers",
        evidence=tuple(f"{arm}: {detail}"[:200] for arm, detail in found[:4]),
        remedy="Read some answers. If the plain arm's are degenerate too, it is the prompts or the target; else the drafter.",
    )
