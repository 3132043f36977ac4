"""Gate: is what training calls accuracy what drafting accepts?

On greedy answers, from the same starts, the two are one number: as long as its guesses are right, a free-running drafter sees
exactly what training showed it. So any gap beyond rounding is a fault, in the trainer's forward pass or in its counting. The decay
from there to the acceptance over rounds is expected: rounds begin where drafts failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.everywhere import draft_from_everywhere
from breakeven.drafter.evaluation.held_out import HeldOut
from breakeven.drafter.evaluation.result import acceptance_of
from breakeven.drafter.evaluation.rounds import draft_rounds
from breakeven.drafter.gates.pipeline import Pipeline
from breakeven.drafter.gates.result import GateResult
from breakeven.findings import Finding

__all__ = ["gap_gate"]

GATE = "gap"
# Of all starts: what near-ties may turn, with a float32 objective and with a bfloat16 one.
MAX_GAP = 0.005
MAX_GAP_HALF = 0.03
# What is learnt by heart is accepted this much more often than what is new, in share of first drafts, before it is worth a word.
MEMORY_GAP = 0.1
TOKENS_LOOKED_AT = 16_384


def gap_gate(held_out: HeldOut, pipeline: Pipeline, *, num_draft_tokens: int = 3, trained_on: Sequence[Sample] = ()) -> GateResult:
    """Joint accuracy of the trainer's objective on held-out greedy answers against free-running acceptance from the same starts.

    trained_on: some training samples; accuracy on them that is far above acceptance on unseen prompts is a finding.
    """
    weights = pipeline.weights()
    drafted = draft_from_everywhere(held_out, pipeline.config, weights, pipeline.target_embed, num_draft_tokens)
    found = [pipeline.depths(packed) for packed in held_out.states]
    k = min(num_draft_tokens, *(len(depths.losses) for depths in found))
    chains = [sum(depths.num_chains[step] for depths in found) for step in range(k)]
    correct = [sum(depths.num_chains_correct[step] for depths in found) for step in range(k)]
    if not all(chains):
        return GateResult(
            gate=GATE,
            outcome="undecided",
            stage="data",
            summary="the held-out answers are too short for so many drafts, so there is no accuracy to compare",
            remedy="take longer answers",
        )
    trained = [good / count for good, count in zip(correct, chains, strict=True)]
    free = drafted.joint[:k]
    rounds = acceptance_of(
        draft_rounds(held_out, pipeline.config, weights, pipeline.target_embed, num_draft_tokens), num_draft_tokens
    ).joint[:k]
    shown = f"{_listed(trained)} in training, {_listed(free)} free-running"
    figures: dict[str, float | int | str | None] = {
        "training": _listed(trained),
        "free_running": _listed(free),
        "rounds": _listed(rounds),
        "num_starts": chains[0],
    }
    if tuple(chains) != drafted.num_starts[:k]:
        return GateResult(
            gate=GATE,
            outcome="failed",
            stage="objective",
            summary=(
                f"accuracy is counted over {chains} starts, drafting has {list(drafted.num_starts[:k])}: the mask marks other "
                f"tokens than the answers ({shown})"
            ),
            remedy="at step k, row t counts where tokens t + 2 to t + 2 + k are all the target's own",
            figures=figures,
        )
    gap = max(abs(mine - theirs) for mine, theirs in zip(trained, free, strict=True))
    if gap > (MAX_GAP if pipeline.tolerance <= 1e-3 else MAX_GAP_HALF):
        worst = next(step for step in range(k) if abs(trained[step] - free[step]) == gap)
        return GateResult(
            gate=GATE,
            outcome="failed",
            stage="model" if trained[worst] > free[worst] else "objective",
            summary=(
                f"joint acceptance by position is {shown}: a gap of {gap:.3f} at position {worst + 1}, from the same starts "
                "on the same greedy answers, where they must be equal"
            ),
            remedy=(
                "training computes another function than drafting: compare positions, norms and what is fed back, step by "
                "step, with drafter/reference"
            ),
            figures=figures | {"gap": gap},
        )
    return GateResult(
        gate=GATE,
        outcome="passed",
        summary=f"joint acceptance by position is {shown} (equal within {gap:.4f}); over rounds it is {_listed(rounds)}",
        figures=figures | {"gap": gap},
        findings=_learnt_by_heart(pipeline, trained_on, free[0]),
    )


def _learnt_by_heart(pipeline: Pipeline, samples: Sequence[Sample], unseen: float) -> tuple[Finding, ...]:
    chosen: list[Sample] = []
    room = TOKENS_LOOKED_AT
    for sample in samples:
        room -= len(sample.token_ids)
        if room < 0:
            break
        chosen.append(sample)
    if not chosen:
        return ()
    depths = pipeline.depths(pipeline.capture.capture(chosen))
    if not depths.num_chains[0]:
        return ()
    seen = depths.num_chains_correct[0] / depths.num_chains[0]
    if seen - unseen <= MEMORY_GAP:
        return ()
    return (
        Finding(
            code="training-accuracy-above-acceptance",
            severity="warning",
            confidence="medium",
            title="The head knows its training samples far better than unseen prompts",
            evidence=(
                f"first drafts: {seen:.3f} right on {len(chosen)} training samples, {unseen:.3f} accepted on held-out prompts",
            ),
            remedy="more samples or fewer epochs; training accuracy promises more than will be served",
        ),
    )


def _listed(values: tuple[float, ...] | list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
