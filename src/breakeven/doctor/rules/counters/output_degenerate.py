"""Prompts or answers are not text.

Detects: answers (--answers) or prompts that repeat one phrase or one character to their end, or trials of a run that were voided
because answers do.

Why it hurts: repetition is easy to draft and random tokens are not: acceptance and speed of such traffic say nothing of the real
one. NaN logits look like this too.

Evidence: the share of such answers and prompts, with an example; the reasons with which trials were voided.

Remedy: real prompts with the model's chat template; read some of the answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import Seen, Told
from breakeven.loadgen.degenerate import MAX_DEGENERATE_SHARE

# One odd answer is an odd answer.
MIN_ODD = 2


def check(evidence: Evidence) -> Iterator[Told]:
    yield from _trials(evidence)
    answers = evidence.answers
    if answers is None:
        return
    for what, looping, number in (
        ("answers", answers.looping_answers, answers.num_texts),
        ("prompts", answers.looping_prompts, answers.num_prompts),
    ):
        if len(looping) < MIN_ODD or len(looping) <= MAX_DEGENERATE_SHARE * number:
            continue
        yield Seen(
            sign="degenerate-output",
            severity="error",
            confidence="high",
            title=f"{len(looping)} of {number} {what} in {answers.source} are no text",
            evidence=tuple(f"{answers.source}: {reason}"[:200] for reason in looping[:4]),
            remedy="Use real prompts with the model's chat template, and read some of the answers. If plain serving answers "
            "sensibly, the drafter's or the engine's logits are at fault.",
            refutes=("The drafter's quality: what is accepted on such text says nothing about it.",),
        )


def _trials(evidence: Evidence) -> Iterator[Told]:
    run = evidence.run
    if run is None:
        return
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
        remedy=(
            "Read some of the answers: the plain arm's are degenerate too, so it is the prompts or the target."
            if set(arms) & plain
            else "Read some of the answers: the plain arm's are sensible, so it is the drafter's or the engine's logits."
        ),
    )
