"""Gate: does a small training help on prompts it has not seen, and what does its curve promise for the whole of the data?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.held_out import HeldOut
from breakeven.drafter.evaluation.result import accept_length_gain, accept_length_interval, acceptance_of
from breakeven.drafter.evaluation.rounds import AnswerRounds, draft_rounds
from breakeven.drafter.gates.pipeline import Pipeline
from breakeven.drafter.gates.result import GateResult

__all__ = ["pilot_gate"]

GATE = "pilot"
NUM_LOOKS = 4


def pilot_gate(
    samples: Sequence[Sample],
    held_out: HeldOut,
    pipeline: Pipeline,
    *,
    num_steps: int,
    full_steps: int,
    num_draft_tokens: int = 3,
    tell: Callable[[str], None] = lambda _: None,
) -> GateResult:
    """Train for `num_steps` on `samples` and compare the accept length on `held_out` with that of the head before, prompt by
    prompt.

    full_steps: steps of the training that the pilot stands for, at equal batches. The pipeline's head is trained further by this.
    """

    def drafted() -> tuple[AnswerRounds, ...]:
        return draft_rounds(held_out, pipeline.config, pipeline.weights(), pipeline.target_embed, num_draft_tokens)

    untrained = now = drafted()
    curve = [(0, _length(untrained, num_draft_tokens))]
    done = 0
    for look in range(1, NUM_LOOKS + 1):
        until = num_steps * look // NUM_LOOKS
        if until > done:
            pipeline.fit(samples, until - done)
            done = until
            now = drafted()
            curve.append((done, _length(now, num_draft_tokens)))
            tell(f"pilot: accept length {curve[-1][1]:.2f} on {len(now)} held-out prompts after {done} steps")
    gain = accept_length_gain(now, untrained, num_draft_tokens)
    interval = accept_length_interval([acceptance_of([answer], num_draft_tokens) for answer in now])
    low, high = _promise(curve, full_steps, num_draft_tokens)
    figures: dict[str, float | int | str | None] = {
        "untrained": curve[0][1],
        "accept_length": curve[-1][1],
        "gain": _finite(gain.value),
        "gain_low": _finite(gain.low),
        "gain_high": _finite(gain.high),
        "num_prompts": gain.num_blocks,
        "num_steps": num_steps,
        "num_samples": len(samples),
        "full_steps": full_steps,
        "promise_low": low,
        "promise_high": high,
        "curve": ", ".join(f"{step}: {length:.3f}" for step, length in curve),
    }
    within = f" ({gain.low:+.3f} to {gain.high:+.3f})" if gain.usable else ""
    found = (
        f"accept length {curve[0][1]:.3f} before and {curve[-1][1]:.3f} after {num_steps} steps on {len(samples)} samples, a "
        f"gain of {gain.value:+.3f}{within} over {gain.num_blocks} held-out prompts"
    )
    if gain.usable and gain.low > 0:
        wide = "" if interval.usable else "; the prompts show too little spread for an interval of its own"
        return GateResult(
            gate=GATE,
            outcome="passed",
            summary=(
                f"{found}. After all {full_steps} steps: {low:.2f} if it stops growing now, {high:.2f} if it goes on growing "
                f"by as much a doubling of steps as in the pilot; a guess, not an interval{wide}"
            ),
            figures=figures,
        )
    if gain.usable and gain.high <= 0:
        return GateResult(
            gate=GATE,
            outcome="failed",
            stage="training",
            summary=f"{found}: training makes it no better",
            remedy="look at the data (whose answers, whose template), the learning rate, and the gates before this one",
            figures=figures,
        )
    return GateResult(
        gate=GATE,
        outcome="undecided",
        stage="training",
        summary=f"{found}: the interval holds zero, or there is none, so nothing is shown",
        remedy="more held-out prompts (evaluation.num_prompts) or a longer pilot (gates.pilot_steps) would decide it",
        figures=figures,
    )


def _length(answers: Sequence[AnswerRounds], num_draft_tokens: int) -> float:
    return acceptance_of(answers, num_draft_tokens).accept_length


def _promise(curve: Sequence[tuple[int, float]], full_steps: int, num_draft_tokens: int) -> tuple[float, float]:
    """No further growth, and as much a doubling of steps as over the last half of the pilot (drafts grow with the log of steps)."""
    last_step, last = curve[-1]
    middle_step, middle = curve[max(0, len(curve) - 1 - NUM_LOOKS // 2)]
    if not last_step or full_steps <= last_step or not middle_step or last <= middle:
        return last, last
    a_doubling = (last - middle) / math.log2(last_step / middle_step)
    return last, min(num_draft_tokens + 1.0, last + a_doubling * math.log2(full_steps / last_step))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
