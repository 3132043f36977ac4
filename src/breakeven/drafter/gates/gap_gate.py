"""Gate: is what training calls accuracy what drafting accepts?

On greedy answers, from the same starts, the two are one number: as long as its guesses are right, a free-running drafter sees
exactly what training showed it. So any gap beyond rounding is a fault, in the trainer's forward pass or in its counting. The decay
from there to the acceptance over rounds is expected: rounds begin where drafts failed.
"""

from __future__ import annotations

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
# From the same function, acceptance over rounds has lain this much below that over all starts, relatively (docs/training-gates.md).
USUAL_DECAY = 0.35


def gap_gate(held_out: HeldOut, pipeline: Pipeline, *, num_draft_tokens: int = 3) -> GateResult:
    """Joint accuracy of the trainer's objective on held-out greedy answers against free-running acceptance from the same starts."""
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
        findings=_decay(free, rounds),
    )


def _decay(free: tuple[float, ...], rounds: tuple[float, ...]) -> tuple[Finding, ...]:
    if not rounds or not free[0] or 1.0 - rounds[0] / free[0] <= USUAL_DECAY:
        return ()
    return (
        Finding(
            code="acceptance-falls-over-rounds",
            severity="warning",
            confidence="low",
            title="Rounds begin at places that are much harder than the average token",
            evidence=(f"first draft accepted {free[0]:.3f} from every position and {rounds[0]:.3f} over rounds",),
            remedy="expect the served accept length, not what training accuracy suggests; more data of the hard kinds helps",
        ),
    )


def _listed(values: tuple[float, ...] | list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
