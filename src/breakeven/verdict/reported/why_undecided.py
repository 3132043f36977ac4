"""Why reported figures leave the question open, in the words that end the headline: the weightiest reason alone."""

from __future__ import annotations

from breakeven.units import format_ratio
from breakeven.verdict.reported.case import Case, listed, only_lengths
from breakeven.verdict.reported.comparing import Pair

__all__ = ["why_undecided"]


def why_undecided(case: Case, pairs: tuple[Pair, ...]) -> str:
    if pairs:
        best = max(pairs, key=lambda pair: pair.ratio)
        where = f"{best.arm.name}, {format_ratio(best.ratio)} at {best.load.label}"
        return f"the best fair comparison is {where}, within the drift between launches"
    if any(pair.is_impossible for pair in case.pairs):
        return "the baseline, or the accept length, cannot be right"
    if case.floored and len(case.floored) == len(case.readings):
        return "no draft was ever accepted, so the wiring was measured and not speculation"
    if case.floored:
        dead = listed(reading.arm.name for reading in case.floored)
        return f"{dead} accepted no draft at all, and no other speculative arm was compared at equal load"
    if case.barely_accepting and any(pair.is_fair for pair in case.pairs):
        weak = listed(
            f"{reading.arm.name} (accept length {length.estimate:.2f})"
            for reading in case.barely_accepting
            if (length := reading.overall.accept_length) is not None
        )
        return f"next to nothing was accepted by {weak}, likelier a fault than a verdict on speculation"
    if any(reading.arm.is_idle for reading in case.readings) and all(pair.arm.is_idle for pair in case.pairs if pair.is_fair):
        return "no arm was compared that drafts anything"
    if any(pair.contradiction for pair in case.pairs):
        return "the reported speedup is not that of the speeds beside it"
    if any(pair.unlike for pair in case.pairs) and all(pair.unlike or not pair.is_fair for pair in case.pairs):
        odd = [pair for pair in case.pairs if pair.unlike]
        how = "with requests of different lengths" if only_lengths(odd) else "under different conditions"
        return f"arms were measured {how} ({listed(pair.unlike for pair in odd)})"
    if case.pairs:
        return "no speculative arm was compared at a known equal load"
    if any(reading.overall.status == "ambiguous" for reading in case.readings):
        return _several_meanings(case)
    if not case.plain:
        return "plain decoding was not reported"
    if case.without_baseline:
        lonely = listed(arm.name for arm in case.without_baseline)
        return f"no plain arm is like {lonely} in engine, release, hardware, split and weights"
    return "no speculative arm shares a load with plain decoding on its engine"


def _several_meanings(case: Case) -> str:
    for cost in case.costs:
        reading = case.reading(cost.arm)
        if reading is not None and reading.overall.status == "ambiguous" and reading.overall.candidates:
            ratios = dict.fromkeys(format_ratio(c.accept_length.estimate / cost.value) for c in reading.overall.candidates)
            at = f"{' or '.join(ratios)} at {cost.load.label}"
            on = "the release that printed its rate" if reading.rate is not None else "whether its length counts the bonus token"
            return f"{cost.arm.name} would be at {at}, depending on {on}"
    return "what was printed has several meanings"
