"""What follows from the reported figures, in plain words with the evidence beside it, most general first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from breakeven.doctor.public_figures import public_accept_length, quantization_loss
from breakeven.printed.definitions import METHODS_THAT_SKIP_STEPS
from breakeven.units import format_ratio
from breakeven.verdict.reported.arms import ReportedArm
from breakeven.verdict.reported.case import Case, listed, speed_unit, spoken_speed
from breakeven.verdict.reported.comparing import Pair
from breakeven.verdict.reported.floor import why_not_quantization
from breakeven.verdict.reported.predicting import CostRatio
from breakeven.verdict.reported.printed_meanings import printed_meanings
from breakeven.verdict.reported.ranking import ranking
from breakeven.verdict.reported.readings import ArmReading
from breakeven.verdict.reported.sweeps import saturation, sweeps
from breakeven.verdict.reported.without_interval import outcome_without_interval
from breakeven.verdict.reported.wording import meanings, percent_change, printed
from breakeven.verdict.result import Conclusion

__all__ = ["conclusions"]

ROWS_TOLD = 8
COSTS_TOLD_APART = 3


def conclusions(case: Case) -> tuple[Conclusion, ...]:
    return (
        *ranking(case),
        *_outcomes(case),
        *_different_admission(case),
        *printed_meanings(case),
        *_break_even(case),
        *_either_way(case),
        *_not_quantization(case),
        *sweeps(case),
        *saturation(case),
    )


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
    if theirs is None:
        return f"{pair.arm.name} {format_ratio(pair.ratio)} as reported at {pair.load.label}, no speeds; {pair.admission.text}"
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
        reason = "the load they were taken at is not known"
        if not any(pair.arm.engine for pair in told):
            reason = "the engine was not reported, so nothing shows that the arms ran on the same one"
        elif all(pair.load.concurrency is not None for pair in told):
            reason = "how many requests each arm ran at once was not reported"
        text = f"{where} cannot be compared: {reason}."
    else:
        were = "were" if all(pair.admission.is_equal is False for pair in unequal) else "may well have been"
        text = (
            f"{where} {were} measured at different admitted concurrency, so they do not show what speculation costs; how much of "
            "the gap is the limit alone cannot be read from them."
        )
    evidence = [f"{pair.arm.name} {format_ratio(pair.ratio)}; {pair.admission.text}" for pair in told[:ROWS_TOLD]]
    return [Conclusion(text=text, evidence=tuple(dict.fromkeys(evidence)))]


def _break_even(case: Case) -> list[Conclusion]:
    if len(case.costs) <= COSTS_TOLD_APART:
        by_round: dict[tuple[object, ...], list[CostRatio]] = defaultdict(list)
        for cost in case.costs:
            by_round[cost.load, cost.arm.method, cost.arm.config, cost.value].append(cost)
        found = [_one_break_even(case, costs) for costs in by_round.values()]
    else:
        told = case.costs[:ROWS_TOLD]
        more = f" and {len(case.costs) - ROWS_TOLD} more" if len(case.costs) > ROWS_TOLD else ""
        shown = ", ".join(f"{cost.arm.name} at {cost.load.label} {cost.value:.2f}{_have(case, [cost])}" for cost in told)
        text = f"What a round costs in plain steps, which is the accept length that breaks even: {shown}{more}."
        found = [Conclusion(text=text, evidence=tuple(f"{cost.arm.name}: {cost.text}" for cost in told))]
    return found + _predictions(case)


def _one_break_even(case: Case, costs: list[CostRatio]) -> Conclusion:
    cost = costs[0]
    config = f" {cost.arm.config}" if cost.arm.config else ""
    text = f"At {cost.load.label} a round of {cost.arm.method}{config} costs {cost.value:.2f} plain steps"
    return Conclusion(
        text=f"{text}, so it breaks even at accept length {cost.value:.2f}{_have(case, costs)}.",
        evidence=tuple(f"{cost.arm.name}: {cost.text}" for cost in costs),
    )


def _have(case: Case, costs: Sequence[CostRatio]) -> str:
    known = []
    for cost in costs:
        reading = case.reading(cost.arm)
        length = reading.accept_length(cost.load) if reading is not None else None
        if length is not None:
            known.append(f"{cost.arm.name} has {length.estimate:.2f}")
    return f" ({listed(known)})" if known else ""


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
            ways = [
                _way(length, cost.value, condition, case.table.threshold)
                for length, condition in meanings(reading.overall.candidates)
            ]
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
