"""Gate: does an engine count what was counted offline?

In float32 a drafter is a function, so on the same prompts an engine takes the same rounds and accepts the same drafts, to the last
token. Whatever the engine reads otherwise (layer ids, positions, names, a map) shows here, also where trainer and offline decoder
share the fault and agree with each other. In bfloat16 rounding turns near-ties, so answers differ and equal counts are not to be
had: that is undecided, with both accept lengths and whether the served one lies within the interval of the offline one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.drafter.evaluation.held_out import GreedyAnswer
from breakeven.drafter.evaluation.result import accept_length_interval, acceptance_of
from breakeven.drafter.evaluation.rounds import AnswerRounds
from breakeven.drafter.gates.result import GateResult

__all__ = ["ServedCounts", "served_gate"]

GATE = "served"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCounts:
    """What an engine said of one prompt. `accepted_per_position[i]` counts the rounds that accepted more than i drafts."""

    token_ids: tuple[int, ...]
    num_rounds: int
    num_accepted: int
    accepted_per_position: tuple[int, ...]


def served_gate(
    engine: str, answers: Sequence[GreedyAnswer], offline: Sequence[AnswerRounds], served: Sequence[ServedCounts]
) -> GateResult:
    """Compare prompt by prompt: tokens, rounds, accepted drafts, and accepted drafts by position."""
    assert len(answers) == len(offline) == len(served)
    other_text = [answer.prompt_id for answer, found in zip(answers, served, strict=True) if found.token_ids != answer.answer_ids]
    rounds = sum(len(mine.accepted) for mine in offline), sum(found.num_rounds for found in served)
    accepted = sum(sum(mine.accepted) for mine in offline), sum(found.num_accepted for found in served)
    figures: dict[str, float | int | str | None] = {
        "num_prompts": len(answers),
        "rounds_offline": rounds[0],
        "rounds_served": rounds[1],
        "accepted_offline": accepted[0],
        "accepted_served": accepted[1],
        "other_answers": len(other_text),
    }
    counted = (
        f"{engine} took {rounds[1]} rounds and accepted {accepted[1]} drafts, offline it is {rounds[0]} and {accepted[0]}, on "
        f"{len(answers)} prompts"
    )
    if other_text:
        return GateResult(
            gate=GATE,
            outcome="undecided",
            stage="serving",
            summary=f"{engine} answers {len(other_text)} prompts otherwise (the first: {other_text[0]}); {counted}: "
            f"{_lengths(offline, served)}",
            remedy="serve in float32 with the same target folder; compare prompts token for token, and end-of-sequence tokens",
            figures=figures,
        )
    wrong = [
        answer.prompt_id
        for answer, mine, found in zip(answers, offline, served, strict=True)
        if (len(mine.accepted), _by_position(mine, len(found.accepted_per_position)))
        != (found.num_rounds, found.accepted_per_position)
    ]
    if wrong:
        return GateResult(
            gate=GATE,
            outcome="failed",
            stage="serving",
            summary=f"{counted}: they differ on {len(wrong)} (the first: {wrong[0]}), in float32 they must be equal",
            remedy=_reading(offline, served),
            figures=figures,
        )
    return GateResult(gate=GATE, outcome="passed", summary=f"{counted}: equal, position by position", figures=figures)


def _lengths(offline: Sequence[AnswerRounds], served: Sequence[ServedCounts]) -> str:
    """Both accept lengths, and where the served one lies to the offline interval over prompts."""
    num_drafts = max((len(found.accepted_per_position) for found in served), default=0)
    interval = accept_length_interval([acceptance_of([mine], num_drafts) for mine in offline])
    num_rounds = sum(found.num_rounds for found in served)
    if not (interval.usable and num_rounds):
        return "too little to compare accept lengths by"
    length = 1.0 + sum(found.num_accepted for found in served) / num_rounds
    place = "within" if interval.low <= length <= interval.high else "outside"
    return f"accept length {length:.2f}, {place} the offline {interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _by_position(rounds: AnswerRounds, num_positions: int) -> tuple[int, ...]:
    return tuple(sum(count > position for count in rounds.accepted) for position in range(num_positions))


def _reading(offline: Sequence[AnswerRounds], served: Sequence[ServedCounts]) -> str:
    """What the pattern of the difference points at; a hint, the doctor knows more."""
    first_served = sum(found.accepted_per_position[0] for found in served if found.accepted_per_position)
    first_offline = sum(count > 0 for mine in offline for count in mine.accepted)
    if not first_served:
        return "the engine accepts nothing at all: names it does not know, a vocabulary map, or the wrong method; breakeven doctor"
    if first_served < 0.97 * first_offline or first_offline < 0.97 * first_served:
        return (
            "already first drafts differ: auxiliary layers, norms, vocabulary map or weights are read otherwise; breakeven doctor"
        )
    return (
        "first drafts agree and later ones differ: positions, or the state that is fed back, are read otherwise; breakeven doctor"
    )
