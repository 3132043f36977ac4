"""Gate: can the trainer make the head learn ten answers by heart? If not, no amount of data will help."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.evaluate import evaluate
from breakeven.drafter.evaluation.held_out import GreedyAnswer
from breakeven.drafter.evaluation.preparing import prepare
from breakeven.drafter.gates.pipeline import Pipeline
from breakeven.drafter.gates.result import GateResult

__all__ = ["NUM_ANSWERS", "NUM_DRAFT_TOKENS", "answers_alone", "overfit_gate"]

GATE = "overfit"
NUM_ANSWERS = 10
NUM_DRAFT_TOKENS = 4
MIN_ACCEPT_LENGTH = 3.0
MAX_STEPS = 400
MAX_SECONDS = 600.0
STEPS_PER_LOOK = 20


def overfit_gate(
    answers: Sequence[GreedyAnswer],
    pipeline: Pipeline,
    *,
    max_steps: int = MAX_STEPS,
    max_seconds: float = MAX_SECONDS,
    tell: Callable[[str], None] = lambda _: None,
) -> GateResult:
    """Train on `answers` (greedy, continued for 4 drafts) until they are drafted with an accept length above 3 at 4 drafts a round.

    The pipeline's head is spent afterwards: train another one.
    """
    held_out = prepare(answers, pipeline.capture)
    samples = answers_alone(answers)
    began_s, steps, best = time.monotonic(), 0, 0.0
    unknown: float | None = None
    while steps < max_steps and time.monotonic() - began_s < max_seconds:
        pipeline.fit(samples, STEPS_PER_LOOK)
        steps += STEPS_PER_LOOK
        found = evaluate(held_out, pipeline.config, pipeline.weights(), pipeline.target_embed, num_draft_tokens=NUM_DRAFT_TOKENS)
        length, unknown = found.overall.accept_length, found.unknown_token_share
        if length is None:
            return GateResult(
                gate=GATE,
                outcome="undecided",
                stage="data",
                summary=f"the {len(answers)} answers are of one token each, so no round can be drafted",
                remedy="take prompts that the target answers at length",
            )
        best = max(best, length)
        tell(f"overfit: accept length {length:.2f} on {len(answers)} answers after {steps} steps")
        if best > MIN_ACCEPT_LENGTH:
            break
    figures: dict[str, float | int | str | None] = {
        "accept_length": best,
        "num_steps": steps,
        "num_answers": len(answers),
        "num_draft_tokens": NUM_DRAFT_TOKENS,
        "unknown_token_share": unknown,
    }
    if best > MIN_ACCEPT_LENGTH:
        summary = (
            f"{len(answers)} answers are drafted with an accept length of {best:.2f} at k={NUM_DRAFT_TOKENS} after {steps} steps"
        )
        return GateResult(gate=GATE, outcome="passed", summary=summary, figures=figures)
    if steps < max_steps:
        return GateResult(
            gate=GATE,
            outcome="undecided",
            stage="training",
            summary=(
                f"only {steps} steps in {max_seconds:.0f} s on this machine, and the accept length on {len(answers)} answers is "
                f"{best:.2f} so far; expected above {MIN_ACCEPT_LENGTH:.0f} within {max_steps}"
            ),
            remedy="run the gates on a faster machine, or with fewer steps of the objective",
            figures=figures,
        )
    share = f"; {unknown:.0%} of their tokens are outside the draft vocabulary" if unknown else ""
    return GateResult(
        gate=GATE,
        outcome="failed",
        stage="training",
        summary=(
            f"after {steps} steps on {len(answers)} answers alone the head drafts them with an accept length of {best:.2f} at "
            f"k={NUM_DRAFT_TOKENS}; expected above {MIN_ACCEPT_LENGTH:.0f}: the pipeline is broken, more data will not help{share}"
        ),
        remedy="look at the learning rate, the draft vocabulary and the gates before this one",
        figures=figures,
    )


def answers_alone(answers: Sequence[GreedyAnswer]) -> list[Sample]:
    """Training samples of the answers without what lies beyond their ends."""
    return [replace(answer, beyond_ids=()).as_sample() for answer in answers]
