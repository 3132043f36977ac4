"""Headline, decision, what would change it and what to measure next, from reported figures.

Without intervals speculation is said to pay, or not, only from fair comparisons of arms whose drafter works. Otherwise the question
is undecided, and the decision is only which of the measured arms to run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from breakeven.engines.version_facts import admission_flag, forced_acceptance
from breakeven.units import format_ratio
from breakeven.verdict.reported.arms import LoadKey
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.comparing import Pair
from breakeven.verdict.reported.wording import percent_change

__all__ = ["Decision", "decide"]

WORKLOADS_NAMED = 2
MARGINS_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    headline: str
    decision: str
    what_would_change_it: tuple[str, ...]
    next_measurements: tuple[str, ...]


def decide(case: Case) -> Decision:
    pairs = case.telling_pairs
    paying = [pair for pair in pairs if pair.outcome == "pays"]
    none_pays = bool(pairs) and max(pair.ratio for pair in pairs) < 1.0 - case.table.threshold
    if paying:
        headline, decision = _pays(case, paying)
    elif none_pays:
        headline, decision = _none_pays(case, pairs)
    else:
        headline, decision = _undecided(case, pairs)
    return Decision(
        headline=f"{headline} Reported figures carry no interval.",
        decision=decision,
        what_would_change_it=_what_would_change_it(case, pairs, none_pays),
        next_measurements=_next_measurements(case, bool(paying)),
    )


def _at(pairs: list[Pair]) -> str:
    """Loads in words; many workloads at one concurrency are counted instead of named."""
    loads = sorted({pair.load for pair in pairs}, key=lambda load: load.order)
    at: dict[str, list[LoadKey]] = {}
    for load in loads:
        at.setdefault(replace(load, workload="").label, []).append(load)
    return listed(
        (f"{bare} ({len(same)} workloads)" if len(same) > WORKLOADS_NAMED else label)
        for bare, same in at.items()
        for label in ([bare] if len(same) > WORKLOADS_NAMED else [load.label for load in same])
    )


def _pays(case: Case, paying: list[Pair]) -> tuple[str, str]:
    best = max(paying, key=lambda pair: pair.ratio)
    loads = list(dict.fromkeys(pair.load for pair in paying))
    winners = [max((pair for pair in paying if pair.load == load), key=lambda pair: pair.ratio) for load in loads]
    others = [pair for pair in case.telling_pairs if pair.load not in loads]
    lost = [pair for pair in others if all(p.outcome == "slower" for p in others if p.load == pair.load)]
    where = f"best {best.arm.name}, {format_ratio(best.ratio)} at {best.load.label}"
    headline = f"As reported, speculation pays at {_at(paying)}: {where}."
    if lost:
        headline += f" It is slower at {_at(lost)}."
    runs = [
        f"{name} at {_at([winner for winner in winners if winner.arm.name == name])}"
        for name in dict.fromkeys(pair.arm.name for pair in winners)
    ]
    decision = f"Run {listed(runs)}"
    if lost:
        decision += f", and {listed(pair.baseline.name for pair in lost)} at {_at(lost)}"
    open_loads = {point.load for arm in case.arms for point in arm.points} - {pair.load for pair in (*winners, *lost)}
    return headline + _unfair(case), f"{decision}{'; elsewhere the table does not decide.' if open_loads else '.'}"


def _none_pays(case: Case, pairs: tuple[Pair, ...]) -> tuple[str, str]:
    best = max(pairs, key=lambda pair: pair.ratio)
    headline = f"As reported, no configuration pays: the best is {best.arm.name}, {format_ratio(best.ratio)} at {best.load.label}."
    return headline + _unfair(case), f"Run plain decoding ({listed(pair.baseline.name for pair in pairs)})."


def _unfair(case: Case) -> str:
    unfair = [pair for pair in case.pairs if pair.admission.is_equal is not True]
    return f" Nothing follows from {_at(unfair)}, where arms were not shown to run at equal load." if unfair else ""


def _undecided(case: Case, pairs: tuple[Pair, ...]) -> tuple[str, str]:
    load, ranked = case.ranking()
    run = "No speed was reported: there is nothing to choose between."
    if load is not None:
        top = ranked[0][0].name
        run = f"Of the arms measured, run {top}, the fastest at {load.label}."
        if top in {reading.arm.name for reading in case.floored}:
            run = f"{top} is the fastest at {load.label}, with a drafter that brings it nothing: run it without, and measure that."
    if not case.readings:
        return "No arm speculates, so nothing is said about speculation.", run
    predicted = [prediction for prediction in case.predictions if prediction.outcome != "undecided"]
    if predicted and not case.pairs:
        told = [
            f"{p.arm.name} {format_ratio(p.ratio)} at {p.load.label} ({'pays' if p.outcome == 'pays' else 'slower, do not use it'})"
            for p in predicted
        ]
        return f"Predicted, not measured: {listed(told)}.", run
    if not pairs and any(pair.is_impossible for pair in case.pairs):
        run = "Decide nothing by these figures: measure the baseline again."
    return f"Undecided whether speculation pays: {_why_undecided(case, pairs)}.", run


def _why_undecided(case: Case, pairs: tuple[Pair, ...]) -> str:
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
    if case.pairs:
        return "no speculative arm was compared at a known equal load"
    if any(reading.overall.status == "ambiguous" for reading in case.readings):
        return _several_meanings(case)
    if not case.plain:
        return "plain decoding was not reported"
    return "no speculative arm shares a load with plain decoding on its engine"


def _several_meanings(case: Case) -> str:
    for cost in case.costs:
        reading = case.reading(cost.arm)
        if reading is not None and reading.overall.status == "ambiguous" and reading.overall.candidates:
            ratios = dict.fromkeys(format_ratio(c.accept_length.estimate / cost.value) for c in reading.overall.candidates)
            at = f"{' or '.join(ratios)} at {cost.load.label}"
            return f"{cost.arm.name} would be at {at}, depending on the release that printed its rate"
    return "what was printed has several meanings"


def _what_would_change_it(case: Case, pairs: tuple[Pair, ...], none_pays: bool) -> tuple[str, ...]:
    lines = []
    margins = []
    for cost in case.costs:
        reading = case.reading(cost.arm)
        length = reading.accept_length(cost.load) if reading is not None else None
        if length is not None:
            margins.append((abs(length.estimate / cost.value - 1.0), cost, length))
    for _, cost, length in sorted(margins, key=lambda entry: entry[0])[:MARGINS_TOLD]:
        side = "below" if length.estimate > cost.value else "above"
        config = f" {cost.arm.config}" if cost.arm.config else ""
        lines.append(
            f"An accept length {side} {cost.value:.2f} at {cost.load.label} for {cost.arm.method}{config} ({cost.arm.name} has "
            f"{length.estimate:.2f})."
        )
    if case.floored:
        lines.append("A drafter whose drafts are accepted at all: mend the wiring, then measure again.")
    if any(pair.admission.is_equal is not True for pair in case.pairs):
        lines.append("The same arms at equal, stated concurrency and equal limits on running requests.")
    if any(r.overall.status in {"ambiguous", "contradictory"} and r.arm.points for r in case.readings):
        lines.append("The engine's release and the flags of each arm, which fix what the printed rates mean.")
    if pairs or none_pays:
        lines.append("Raw samples of at least three launches an arm, which would give the ratios an interval.")
    return tuple(lines)


def _next_measurements(case: Case, pays: bool) -> tuple[str, ...]:
    """Cheapest first: reading, then one server, then pairs of servers, then sweeps."""
    steps = []
    unclear = [r for r in case.readings if r.overall.status in {"ambiguous", "contradictory"} and r.arm.points]
    if unclear:
        settle = listed(field for reading in unclear for field in reading.overall.settle_by)
        steps.append(f"Nothing to run: read {settle} of {listed(r.arm.name for r in unclear)} from the server's log.")
    suspects = [reading for reading in case.readings if reading.is_at_floor or reading.is_near_floor]
    if suspects:
        code = "accept-length-at-floor" if case.floored else "accept-length-near-floor"
        drafters = listed(reading.arm.drafter or reading.arm.name for reading in suspects)
        steps.append(f"The static check of {drafters}, no GPU needed: the list of finding {code}, in its order.")
    if any(pair.is_impossible for pair in case.pairs):
        steps.append(
            f"The baseline again ({listed(p.baseline.name for p in case.pairs if p.is_impossible)}), with its flags recorded."
        )
    unfair = [pair for pair in case.pairs if pair.admission.is_equal is not True]
    if unfair:
        flags = listed(admission_flag(pair.arm.engine) for pair in unfair)
        arms = listed([*(pair.baseline.name for pair in unfair), *(pair.arm.name for pair in unfair)])
        step = f"{arms} again with equal {flags}, at stated concurrencies from 1 up"
        told = [p for p in case.predictions if p.arm.name in {pair.arm.name for pair in unfair}]
        if told:
            step += f" (predicted: {told[0].arm.name} {percent_change(told[0].ratio)} at {told[0].load.label})"
        steps.append(f"{step}.")
    elif case.predictions:
        steps.append(f"{listed(f'{p.arm.name} at {p.load.label}' for p in case.predictions)}: measure what is predicted here.")
    if case.readings and not case.plain:
        steps.append("Plain decoding on the same engine and weights, at the same concurrencies.")
    known = {cost.load.concurrency for cost in case.costs}
    loads = {point.load.concurrency for reading in case.readings for point in reading.arm.points} or {None}
    if case.readings and (None in loads or not loads <= known):
        steps.append(f"The break-even curve by concurrency on the same hardware, with forced acceptance{_how_to_force(case)}.")
    if case.pairs and (pays or not unfair):
        steps.append("Each arm that matters on at least three fresh launches, alternating with plain decoding, for an interval.")
    return tuple(steps)


def _how_to_force(case: Case) -> str:
    ways = []
    for reading in case.readings:
        way = forced_acceptance(reading.arm.engine, reading.arm.version)
        if way is not None and reading.arm.points:
            ways.append(f"{way.engine}: {way.how}")
    return f" ({listed(ways)})" if ways else ""
