"""What follows from the reported figures, in plain words with the evidence beside it, most general first."""

from __future__ import annotations

from collections import defaultdict

from breakeven.engines.version_facts import first_support
from breakeven.printed.definitions import METHODS_THAT_SKIP_STEPS, definitions_for, rate_has_changed
from breakeven.printed.formulas import RateFormula
from breakeven.units import format_ratio
from breakeven.verdict.public_figures import public_accept_length, quantization_loss
from breakeven.verdict.reported.arms import LoadKey, ReportedArm
from breakeven.verdict.reported.case import Case, listed, plural, speed_unit, spoken_speed
from breakeven.verdict.reported.comparing import CostRatio, Pair, outcome_without_interval
from breakeven.verdict.reported.floor import why_not_quantization
from breakeven.verdict.reported.readings import ArmReading
from breakeven.verdict.reported.sweeps import saturation, sweeps
from breakeven.verdict.reported.wording import engine_name, percent_change, printed, printer, releases, share, spoken_formula
from breakeven.verdict.result import Conclusion

__all__ = ["conclusions"]

ROWS_TOLD = 8
COSTS_TOLD_APART = 3


def conclusions(case: Case) -> tuple[Conclusion, ...]:
    return (
        *_ranking(case),
        *_outcomes(case),
        *_different_admission(case),
        *_formulas(case),
        *_accept_lengths(case),
        *_like_for_like(case),
        *_break_even(case),
        *_either_way(case),
        *_not_quantization(case),
        *sweeps(case),
        *saturation(case),
    )


def _ranking(case: Case) -> list[Conclusion]:
    load, ranked = case.ranking()
    if load is None or len(ranked) < 2:
        return []
    top, best = ranked[0]
    unit = speed_unit(best)
    shown = ", ".join(f"{arm.name} {spoken_speed(point)}" for arm, point in ranked[:ROWS_TOLD])
    more = f" and {len(ranked) - ROWS_TOLD} more" if len(ranked) > ROWS_TOLD else ""
    return [
        Conclusion(
            text=f"As reported, fastest first at {load.label}: {shown}{more} {unit}. {_choice(case, top.name, load)}",
            evidence=(f"{top.name}: {spoken_speed(best)} {unit} at {load.label}, as reported, no interval",),
        )
    ]


def _choice(case: Case, top: str, load: LoadKey) -> str:
    if any(pair.is_impossible for pair in case.pairs):
        return "These figures cannot all be right, so nothing should be chosen by them."
    if top in {reading.arm.name for reading in case.floored}:
        return "The first of them has a drafter that brings it nothing."
    undecided = next((pair for pair in case.pairs if pair.arm.name == top and pair.load == load and pair.outcome != "pays"), None)
    if undecided is not None:
        lead = f"{format_ratio(undecided.ratio)} is undecided"
        return f"That does not show that {top} is faster than {undecided.baseline.name}: {lead}."
    return f"Of these arms {top} is the one to run there."


def _outcomes(case: Case) -> list[Conclusion]:
    found = []
    for outcome, words in (("pays", "Pays"), ("slower", "Slower than plain decoding")):
        pairs = [pair for pair in case.pairs if pair.outcome == outcome]
        if pairs:
            pairs.sort(key=lambda pair: -pair.ratio if outcome == "pays" else pair.ratio)
            shown = listed([f"{pair.arm.name} {format_ratio(pair.ratio)} at {pair.load.label}" for pair in pairs], ROWS_TOLD)
            found.append(
                Conclusion(
                    text=f"{words}, as reported and without an interval: {shown}.",
                    evidence=tuple(_pair_evidence(pair) for pair in pairs[:ROWS_TOLD]),
                )
            )
    return found


def _pair_evidence(pair: Pair) -> str:
    mine, theirs = pair.arm.point(pair.load), pair.baseline.point(pair.load)
    assert mine is not None
    assert theirs is not None
    figures = f"{pair.arm.name} {spoken_speed(mine)} over {pair.baseline.name} {spoken_speed(theirs)} {speed_unit(mine)}"
    return f"{figures} at {pair.load.label}; {pair.admission.text}"


def _different_admission(case: Case) -> list[Conclusion]:
    unfair = [pair for pair in case.pairs if pair.admission.is_equal is not True]
    unequal = [pair for pair in unfair if pair.admission.text.startswith("running requests")]
    told = unequal or unfair
    if not told:
        return []
    where = f"The figures at {listed(pair.load.label for pair in told)}"
    if not unequal:
        text = f"{where} cannot be compared: the load they were taken at is not known."
    else:
        were = "were" if all(pair.admission.is_equal is False for pair in unequal) else "may well have been"
        text = (
            f"{where} {were} measured at different admitted concurrency, so they do not show what speculation costs; how much of "
            "the gap is the limit alone cannot be read from them."
        )
    evidence = [f"{pair.arm.name} {format_ratio(pair.ratio)}; {pair.admission.text}" for pair in told[:ROWS_TOLD]]
    return [Conclusion(text=text, evidence=tuple(dict.fromkeys(evidence)))]


def _formulas(case: Case) -> list[Conclusion]:
    """Releases that the printed figures imply, an arm for each engine."""
    found = []
    for release in case.implied:
        reading = next(reading for reading in case.readings if reading.arm.name == release.arm)
        if reading.arm.version is not None or not rate_has_changed(release.engine):
            continue
        fitting = reading.overall.candidates[0]
        formula = spoken_formula(fitting.definition)
        granted = f", and that only {fitting.allowance}" if fitting.allowance else ""
        shape = reading.overall.shape
        drafts = f" with {plural(shape.num_drafted, 'draft')} a round" if shape is not None and shape.num_drafted else ""
        text = (
            f"What {release.arm} printed{drafts} fits only {formula}{granted}, so this {engine_name(release.engine)} is "
            f"{releases(release.spans)}."
        )
        support = first_support(release.engine, case.table.target.model_type, reading.arm.method)
        evidence = [f"{release.arm}: {printed(reading)}"]
        if support is not None:
            later = [kept for span in release.spans if (kept := span.from_release(support.first)) is not None]
            if later:
                narrowed = releases(tuple(later))
                text += f" {support.method} for this target exists only from {support.first} on, so {narrowed} unless patched."
                evidence.append(f"{support.model_type}: {support.source}")
        floors = [r for r in case.floored if r.arm.engine == release.engine and r.rate is not None]
        if floors and formula_counts_bonus(floors[0]):
            text += f" Its rate counts the bonus token, so {floors[0].rate} is the floor of the scale: no draft accepted."
        found.append(Conclusion(text=text, evidence=tuple(evidence)))
    return found


def formula_counts_bonus(reading: ArmReading) -> bool:
    return any(formula.counts_bonus for formula in reading.overall.formulas)


def _accept_lengths(case: Case) -> list[Conclusion]:
    """What each printed figure means, arms that printed a rate first: lengths explain themselves."""
    told = [reading for reading in case.readings if reading.overall.is_trusted and reading.rate is not None]
    if not told:
        return []
    lines = [_meaning(reading) for reading in told[:ROWS_TOLD]]
    more = f" {len(told) - ROWS_TOLD} more arms are in the table." if len(told) > ROWS_TOLD else ""
    return [
        Conclusion(
            text=f"What the printed figures mean: {'; '.join(lines)}.{more}",
            evidence=tuple(_basis(reading) for reading in told[:ROWS_TOLD]),
        )
    ]


def _meaning(reading: ArmReading) -> str:
    length, overall = reading.overall.accept_length, reading.overall
    assert length is not None
    at_most = "at most " if overall.is_upper_bound else ""
    parts = [f"{reading.arm.name}, rate {reading.rate}, is accept length {at_most}{length.estimate:.2f}"]
    if overall.draft_acceptance is not None and not overall.is_upper_bound and not reading.is_at_floor:
        parts.append(f"{share(overall.draft_acceptance)} of {_what_was_drafted(reading)}")
    if overall.chain_alpha is not None and not reading.is_at_floor and not overall.is_upper_bound:
        parts.append(f"about {overall.chain_alpha:.2f} per position in a chain")
    if reading.is_at_floor:
        parts.append("the floor: no draft was ever accepted")
    return ", ".join(parts)


def _what_was_drafted(reading: ArmReading) -> str:
    """A tree proposes alternatives of which at most one in each depth can be right, so its share is no acceptance per position."""
    return "the tree's nodes (not an acceptance per position)" if reading.arm.shape.is_chain is False else "drafted tokens"


def _basis(reading: ArmReading) -> str:
    definition = reading.overall.candidates[0].definition
    how = f"{reading.arm.name}: {spoken_formula(definition)}"
    if reading.borrowed_from:
        return f"{how}, taken to be the same release as {reading.borrowed_from}"
    if reading.arm.version is not None:
        return f"{how}, printed by {definition.releases}"
    return f"{how}, the only definition that fits" if reading.overall.from_pair else how


def _like_for_like(case: Case) -> list[Conclusion]:
    """The same drafter on two engines: rates only compare as accepted over drafted, at the same number of drafts."""
    by_drafter: dict[str, list[ArmReading]] = defaultdict(list)
    for reading in case.readings:
        if reading.arm.drafter:
            by_drafter[reading.arm.drafter.lower()].append(reading)
    found = []
    for readings in by_drafter.values():
        first, second = readings[0], next((r for r in readings if r.arm.engine != readings[0].arm.engine), None)
        if second is not None:
            conclusion = _two_engines(first, second)
            if conclusion is not None:
                found.append(conclusion)
    return found


def _two_engines(one: ArmReading, other: ArmReading) -> Conclusion | None:
    drafts = {r.arm.shape.num_drafted for r in (one, other)} - {None}
    if len(drafts) != 1 or any(r.arm.shape.is_chain is False for r in (one, other)):
        return None
    (num_drafted,) = drafts
    assert num_drafted is not None
    shares, assumed = [], ""
    for reading in (one, other):
        accepted = reading.overall.draft_acceptance
        if accepted is None and reading.rate is not None and _is_strict_everywhere(reading):
            accepted = reading.rate.value
            assumed = f" (if {reading.arm.name} drafted {num_drafted} too)"
        if accepted is None:
            return None
        shares.append(accepted)
    lengths = [1.0 + share * num_drafted for share in shares]
    differ = ""
    if one.rate is not None and other.rate is not None and _is_strict_everywhere(one) != _is_strict_everywhere(other):
        differ = f" The printed {one.rate} and {other.rate} do not mean the same."
    engines = f"{engine_name(one.arm.engine)} and {engine_name(other.arm.engine)}"
    return Conclusion(
        text=(
            f"{one.arm.drafter} on {engines}, like for like at {plural(num_drafted, 'draft')}{assumed}: {share(shares[0])} against "
            f"{share(shares[1])} of drafted tokens accepted, accept length {lengths[0]:.2f} against {lengths[1]:.2f}.{differ}"
        ),
        evidence=tuple(f"{r.arm.name}: {printed(r)}" for r in (one, other)),
    )


def _is_strict_everywhere(reading: ArmReading) -> bool:
    """Whether this engine's rate is accepted over drafted in every release that may have printed it."""
    rows = definitions_for(reading.arm.engine, reading.arm.surface, reading.arm.version).rows
    return all(row.rate in {None, RateFormula.ACCEPTED_OVER_DRAFTED} for row in rows)


def _break_even(case: Case) -> list[Conclusion]:
    if len(case.costs) <= COSTS_TOLD_APART:
        found = [_one_break_even(case, cost) for cost in case.costs]
    else:
        told = case.costs[:ROWS_TOLD]
        more = f" and {len(case.costs) - ROWS_TOLD} more" if len(case.costs) > ROWS_TOLD else ""
        shown = ", ".join(f"{cost.arm.name} at {cost.load.label} {cost.value:.2f}{_has(case, cost)}" for cost in told)
        text = f"What a round costs in plain steps, which is the accept length that breaks even: {shown}{more}."
        found = [Conclusion(text=text, evidence=tuple(f"{cost.arm.name}: {cost.text}" for cost in told))]
    return found + _predictions(case)


def _one_break_even(case: Case, cost: CostRatio) -> Conclusion:
    config = f" {cost.arm.config}" if cost.arm.config else ""
    text = f"At {cost.load.label} a round of {cost.arm.method}{config} costs {cost.value:.2f} plain steps"
    return Conclusion(
        text=f"{text}, so it breaks even at accept length {cost.value:.2f}{_has(case, cost)}.",
        evidence=(f"{cost.arm.name}: {cost.text}",),
    )


def _has(case: Case, cost: CostRatio) -> str:
    reading = case.reading(cost.arm)
    length = reading.accept_length(cost.load) if reading is not None else None
    return "" if length is None else f" ({cost.arm.name} has {length.estimate:.2f})"


def _predictions(case: Case) -> list[Conclusion]:
    """AL / c where an arm was not measured: always called a prediction, with the figures it rests on."""
    found = []
    for prediction in case.predictions[:ROWS_TOLD]:
        who = f"{prediction.arm.name}, with accept length {prediction.accept_length.estimate:.2f}"
        where = f"{format_ratio(prediction.ratio)} ({percent_change(prediction.ratio)}) at {prediction.load.label}"
        basis = f"cost ratio {prediction.cost.value:.2f} from {prediction.cost.arm.name}: {prediction.cost.text}"
        found.append(Conclusion(text=f"{who}, would be at {where}: a prediction, to be measured.", evidence=(basis,)))
    return found


def _either_way(case: Case) -> list[Conclusion]:
    """An ambiguous rate beside a known cost: the verdict under each meaning."""
    found = []
    for reading in case.readings:
        if reading.overall.status != "ambiguous":
            continue
        for cost in case.costs:
            if cost.arm.name != reading.arm.name:
                continue
            ways = dict.fromkeys(
                _way(candidate.accept_length.estimate, cost.value, printer(candidate.definition), case.table.threshold)
                for candidate in reading.overall.candidates
            )
            decides = " or ".join(reading.overall.settle_by)
            found.append(
                Conclusion(
                    text=f"{reading.arm.name} at {cost.load.label}: {'; '.join(ways)}. Please report {decides}: it decides.",
                    evidence=(printed(reading), f"{cost.value:.2f}: {cost.text}"),
                )
            )
    return found


def _way(length: float, cost: float, condition: str, threshold: float) -> str:
    outcome, _ = outcome_without_interval(length / cost, threshold)
    advice = {"pays": "pays", "slower": "slower, do not use it"}.get(outcome, outcome)
    return f"if {condition}, accept length {length:.2f} and {format_ratio(length / cost)}: {advice} (predicted)"


def _not_quantization(case: Case) -> list[Conclusion]:
    dead = [reading for reading in case.floored if reading.arm.method not in METHODS_THAT_SKIP_STEPS]
    if dead:
        quantized = sorted({r.arm.quantization for r in dead if r.arm.quantization and quantization_loss(r.arm.quantization)})
        blame = f", not of quantization ({listed(quantized)})" if quantized else ", not of too little training"
        return [
            Conclusion(
                text=(
                    f"Accept length exactly 1.00 ({listed(r.arm.name for r in dead)}) is the sign of a wiring fault{blame}: the "
                    "question whether speculation pays here is open, not settled."
                ),
                evidence=(*why_not_quantization(case, dead[0]), "finding accept-length-at-floor gives the checks in their order"),
            )
        ]
    return [_weak(case, reading.arm) for reading in case.readings[:1] if _is_weak(case, reading)]


def _is_weak(case: Case, reading: ArmReading) -> bool:
    public = public_accept_length(case.table.target.name, reading.arm.shape.num_drafted)
    length = reading.accept_length()
    return public is not None and length is not None and bool(reading.arm.shape.is_chain) and length.high < public.low - 0.3


def _weak(case: Case, arm: ReportedArm) -> Conclusion:
    public = public_accept_length(case.table.target.name, arm.shape.num_drafted)
    assert public is not None
    return Conclusion(
        text=f"{arm.name} accepts less than public heads do on this target ({public.low:.1f} to {public.high:.1f}).",
        evidence=(public.source,),
    )
