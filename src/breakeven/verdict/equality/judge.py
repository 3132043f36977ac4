"""Speculative answers against plain ones, judged against plain answers given a second time (docs/equality.md).

Greedy speculation is lossless in exact arithmetic. Real servers compute in few bits, and a batch of another shape rounds
differently, so plain decoding parts from itself as well: at near ties, and from there the texts have nothing in common. Therefore

* a prompt is asked of plain decoding twice, in batches of different shape, and of speculation once; if speculation were nothing
  but another plain pass, which of the two leaves the first pass first would be a fair coin: an exact sign test over prompts;
* a difference is *far* where plain preferred its own token by more than rounding explains. Where servers tell log-probabilities
  only far differences make a fault: speculation computes in shapes of its own, and may meet more ties than plain does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.loadgen.answers import GreedyAnswer
from breakeven.stats.departures import kaplan_meier
from breakeven.units import plural
from breakeven.verdict.equality.deciding import Counts, decide
from breakeven.verdict.equality.departure import Departure, departure, departure_in_text
from breakeven.verdict.equality.result import ArmEquality, EqualityOutcome, Example, Parting

__all__ = ["Passes", "judge_arm", "near_tie_nats"]

# Logits between 16 and 32 are 0.125 apart in bfloat16, and two of them may be off by two steps each. In float32 the same is 1e-5;
# summing in another order through dozens of layers makes it a hundred times that at most.
NEAR_TIE_NATS = 0.5
NEAR_TIE_NATS_FLOAT32 = 0.01
NUM_EXAMPLES = 3
EXCERPT_BEFORE, EXCERPT_AFTER = 20, 60

_WORDS: dict[EqualityOutcome, str] = {
    "equal": "{arm} says what {reference} says",
    "numerics": "{arm} differs from {reference} no more than rounding explains",
    "fault": "{arm} does not say what {reference} says: speculation changes its output",
    "undecided": "Whether {arm} says what {reference} says is undecided",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Answers to the same prompts in the same order: plain, plain once more in other batches, and with speculation."""

    plain: Sequence[GreedyAnswer]
    again: Sequence[GreedyAnswer]
    speculative: Sequence[GreedyAnswer]


def near_tie_nats(dtype: object) -> float:
    """The largest margin that rounding explains, by the dtype that the engine says it computes in."""
    return NEAR_TIE_NATS_FLOAT32 if "float32" in str(dtype) else NEAR_TIE_NATS


def judge_arm(arm: str, reference: str, passes: Passes, *, dtype: object = None) -> ArmEquality:
    """The outcome for one arm. Pure."""
    near = near_tie_nats(dtype)
    whole = [
        answers
        for answers in zip(passes.plain, passes.again, passes.speculative, strict=True)
        if all(answer.error is None for answer in answers)
    ]
    pairs = [_both(*answers) for answers in whole]
    mine, own = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    left_first, plain_first = [a for a, b in pairs if _before(a, b)], [b for a, b in pairs if _before(b, a)]
    parted = [found for found in mine if found.position is not None]
    has_margins = not parted or any(found.margin is not None for found in parted)
    speculative = _parting(mine, [other for _, _, other in whole], near)
    plain = _parting(own, [first for first, _, _ in whole], near)
    counts = Counts(
        num_prompts=len(whole),
        num_failed=len(passes.plain) - len(whole),
        num_degenerate=plain.num_degenerate,
        num_parted=speculative.num_parted,
        num_far=speculative.num_far,
        plain_num_far=plain.num_far,
        num_unknown=speculative.num_unknown,
        num_positions=sum(found.length for found in mine),
        left_first=len(left_first),
        plain_left_first=len(plain_first),
        far_first=sum(_is_far(found, near) for found in left_first) if has_margins else None,
        plain_far_first=sum(_is_far(found, near) for found in plain_first) if has_margins else None,
        exact=near == NEAR_TIE_NATS_FLOAT32,
    )
    decision = decide(counts)
    return ArmEquality(
        arm=arm,
        reference=reference,
        outcome=decision.outcome,
        sentence=f"{_WORDS[decision.outcome].format(arm=arm, reference=reference)}: {decision.reason}",
        evidence=tuple(_evidence(counts, arm, speculative, plain, near)),
        remedy=decision.remedy,
        num_prompts=counts.num_prompts,
        num_failed=counts.num_failed,
        num_left_first=counts.left_first,
        num_plain_left_first=counts.plain_left_first,
        p_value=counts.p_value,
        p_value_far=counts.p_value_far,
        speculative=speculative,
        plain=plain,
        examples=tuple(_examples(whole, mine)),
    )


def _both(first: GreedyAnswer, second: GreedyAnswer, other: GreedyAnswer) -> tuple[Departure, Departure]:
    """Where speculation and where plain itself leaves the first plain answer, in the same unit."""
    mine, own = departure(first, other), departure(first, second)
    if mine.in_tokens != own.in_tokens:
        return departure_in_text(first, other), departure_in_text(first, second)
    return mine, own


def _before(a: Departure, b: Departure) -> bool:
    return a.position is not None and (b.position is None or a.position < b.position)


def _is_far(found: Departure, near: float) -> bool:
    return found.margin is not None and found.margin > near


def _is_near(found: Departure, near: float) -> bool:
    return found.margin is not None and found.margin <= near and not found.at_least


def _parting(departures: Sequence[Departure], answers: Sequence[GreedyAnswer], near: float) -> Parting:
    parted = [found for found in departures if found.position is not None]
    margins = [found.margin for found in parted if found.margin is not None]
    num_far = sum(_is_far(found, near) for found in parted)
    num_near = sum(_is_near(found, near) for found in parted)
    longest = max((found.length for found in departures), default=0)
    at = sorted({max(1, longest * part // 4) for part in range(1, 5)}) if longest else []
    shares = kaplan_meier([found.position for found in departures], [found.length for found in departures], at)
    bad = [answer.degenerate for answer in answers if answer.degenerate is not None]
    return Parting(
        num_parted=len(parted),
        num_near=num_near,
        num_far=num_far,
        num_unknown=len(parted) - num_near - num_far,
        median_position=statistics.median(found.position for found in parted if found.position is not None) if parted else None,
        agreeing=tuple(zip(at, shares, strict=True)),
        largest_margin=max(margins, default=None),
        num_degenerate=len(bad),
        degenerate=bad[0] if bad else None,
    )


def _evidence(counts: Counts, arm: str, speculative: Parting, plain: Parting, near: float) -> list[str]:
    facts = [f"{arm}: {_told(speculative, counts)}", f"plain against itself: {_told(plain, counts)}"]
    facts.append(
        f"left plain's first answer first: {arm} in {plural(counts.left_first, 'prompt')}, plain in {counts.plain_left_first} "
        f"(sign test, one-sided, p = {counts.p_value:.2g})"
    )
    if counts.p_value_far is not None:
        facts.append(
            f"the same where plain preferred its own token by more than {near:g} nats: {counts.far_first} and "
            f"{counts.plain_far_first} (p = {counts.p_value_far:.2g})"
        )
    for who, parting in ((arm, speculative), ("plain", plain)):
        if parting.num_degenerate:
            facts.append(f"{who}: {parting.num_degenerate} of {counts.num_prompts} answers are degenerate ({parting.degenerate})")
    if counts.num_failed:
        facts.append(f"{counts.num_failed} prompts were left out because a request failed")
    return facts


def _told(parting: Parting, counts: Counts) -> str:
    text = f"{parting.num_parted} of {counts.num_prompts} answers differ"
    if not parting.num_parted:
        return text
    text += f", at the median from position {parting.median_position:g} on"
    if parting.num_near or parting.num_far:
        text += f"; {parting.num_near} at a near tie, {parting.num_far} not (largest margin {parting.largest_margin:.2g} nats)"
    if parting.num_unknown:
        text += f"; {parting.num_unknown} with a margin that the server does not tell"
    return text


def _examples(whole: Sequence[tuple[GreedyAnswer, GreedyAnswer, GreedyAnswer]], mine: Sequence[Departure]) -> list[Example]:
    """The differences furthest from a tie, then the earliest."""
    parted = [(found, answers) for found, answers in zip(mine, whole, strict=True) if found.position is not None]
    parted.sort(key=lambda item: (-(item[0].margin or 0.0), item[0].position))
    examples = []
    for found, (first, _, other) in parted[:NUM_EXAMPLES]:
        assert found.position is not None
        where = departure_in_text(first, other).position or 0
        begin, end = max(0, where - EXCERPT_BEFORE), where + EXCERPT_AFTER
        examples.append(
            Example(
                prompt_id=first.prompt_id,
                position=found.position,
                unit="tokens" if found.in_tokens else "characters",
                margin=found.margin,
                at_least=found.at_least,
                plain=first.text[begin:end],
                speculative=other.text[begin:end],
            )
        )
    return examples
