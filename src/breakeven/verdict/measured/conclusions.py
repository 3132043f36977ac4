"""Conclusions in plain words, each with the figures it rests on, from the most general to the most particular."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from breakeven.acceptance import Acceptance
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.floor import dead_drafters, has_random_weights, is_lookup
from breakeven.verdict.measured.outcomes import outcomes
from breakeven.verdict.measured.what_would_change import required_length
from breakeven.verdict.measured.wording import accepted_drafts, figure, figure_of_log, in_words, listed, percent, ratio
from breakeven.verdict.result import BestOfArm, BreakEvenPoint, Cell, Comparison, Conclusion

__all__ = ["conclusions"]


def conclusions(
    case: Case,
    table: Sequence[Cell],
    compared: Sequence[Comparison],
    points: Sequence[BreakEvenPoint],
    best: Sequence[BestOfArm],
) -> tuple[Conclusion, ...]:
    return (
        *outcomes(case, table, compared, best),
        *_break_even(case, points),
        *_idle(case),
        *_accept_lengths(case),
        *_dead(case),
        *_predictions(case, compared),
        *_certainty(compared),
    )


def _break_even(case: Case, points: Sequence[BreakEvenPoint]) -> list[Conclusion]:
    grouped: dict[tuple[str, int], list[BreakEvenPoint]] = defaultdict(list)
    for point in points:
        grouped[point.method, point.num_draft_tokens].append(point)
    found = []
    for (method, num_drafts), group in grouped.items():
        told = listed(f"{figure(point.cost_ratio)} at {point.load}" for point in group)
        text = (
            f"A round of {method} with {plural(num_drafts, 'draft')} costs, in plain steps: {told}. An accept length above that"
            " decodes faster than plain decoding"
        )
        needed = [
            f"{figure(length)} at {point.load}"
            for point in group
            if (length := required_length(case, method, num_drafts, point.load, 1 + case.record.threshold)) is not None
        ]
        if needed and case.record.objective.name == "throughput":
            gain = percent(case.record.threshold)
            text += f"; with prefill included, gaining more than {gain} takes an accept length above {listed(needed)}"
        found.append(Conclusion(text=f"{text}.", evidence=tuple(f"{point.load}: {point.basis}" for point in group)))
    return found


def _idle(case: Case) -> list[Conclusion]:
    found = []
    for method in dict.fromkeys(method for method, _ in case.costs.idle):
        costs = [(load, cost) for (name, load), cost in case.costs.idle.items() if name == method and cost.log.usable]
        if costs:
            told = listed(f"{figure_of_log(cost.log)} at {load}" for load, cost in costs)
            text = f"With {method} loaded and no drafts a step costs, in plain steps, {told}: what a schedule loses where it rests."
            found.append(Conclusion(text=text, evidence=tuple(f"{load}: {listed(cost.arms)}" for load, cost in costs)))
    return found


def _accept_lengths(case: Case) -> list[Conclusion]:
    found = []
    dead = set(dead_drafters(case))
    for arm in case.candidates:
        here = [(load, case.lengths[arm.name, load]) for load in case.loads if (arm.name, load) in case.lengths]
        if not here or arm.name in dead:
            continue
        told = listed(f"{figure(length.interval)} at {load}" for load, length in here)
        text = f"{arm.name} has accept length {told}"
        share = here[0][1].counts.drafted_share
        if arm.speculation is not None and arm.speculation.schedule:
            text += f"; its schedule by running requests: {in_words(arm.speculation.schedule)}"
        elif share < 0.98:
            text += f"; it found something to draft at {percent(share)} of steps ({here[0][0]})"
        found.append(
            Conclusion(
                text=f"{text}.",
                evidence=tuple(f"{load}: {_counted(length.counts)}" for load, length in here),
            )
        )
    return found


def _counted(counts: Acceptance) -> str:
    by_position = ", ".join(f"{joint:.2f}" for joint in counts.joint)
    return f"{accepted_drafts(counts)} in {counts.num_steps} steps" + (
        f"; all up to the 1st, 2nd, ... draft: {by_position}" if by_position else ""
    )


def _dead(case: Case) -> list[Conclusion]:
    found = []
    for name in dead_drafters(case):
        costs = [f"{figure_of_log(case.own_cost(name, load))} at {load}" for load in case.loads if (name, load) in case.costs.own]
        text = f"{name} accepts nothing (accept length 1.00)."
        if is_lookup(case, name):
            text += " What it finds in the text so far is never what comes next: this traffic does not repeat itself."
        elif has_random_weights(case, name):
            text += " Its head has random weights, so nothing else was to be expected: it shows what a round costs."
        else:
            text += (
                " That is the sign of a drafter that is not wired to this target as it was trained; weak training or quantization"
                " leave more than nothing."
            )
        if costs and not is_lookup(case, name):
            text += f" Each round still costs, in plain steps, {listed(costs)}, and yields the one token of a plain step."
        found.append(
            Conclusion(
                text=text,
                evidence=tuple(f"{load}: {_counted(length.counts)}" for (arm, load), length in case.lengths.items() if arm == name),
            )
        )
    return found


def _predictions(case: Case, compared: Sequence[Comparison]) -> list[Conclusion]:
    checked = [
        (item, case.predictions[item.arm, item.load])
        for item in compared
        if (item.arm, item.load) in case.predictions and case.predictions[item.arm, item.load].log_speedup is not None
    ]
    found = []
    agreeing = [item for item, prediction in checked if prediction.agrees]
    if checked:
        text = f"Accept length and round cost, measured apart, predict {len(agreeing)} of {len(checked)} speedups within noise"
        differing = [f"{item.arm} at {item.load}" for item, prediction in checked if not prediction.agrees]
        text += f"; not that of {listed(differing)}." if differing else "."
        found.append(
            Conclusion(text=text, evidence=tuple(f"{item.arm} at {item.load}: {item.gap_explained}" for item, _ in checked))
        )
    unpredicted: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for item in compared:
        prediction = case.predictions.get((item.arm, item.load))
        if prediction is not None and prediction.why_none:
            unpredicted[item.arm, prediction.why_none].append(item)
    found += [
        Conclusion(
            text=f"{arm} was not predicted{_where(items, compared)}: {why}.",
            evidence=tuple(
                f"{item.load}: decoding alone is {ratio(item.decode_ratio)} as fast as plain" for item in items if item.decode_ratio
            ),
        )
        for (arm, why), items in unpredicted.items()
    ]
    return found


def _where(items: Sequence[Comparison], compared: Sequence[Comparison]) -> str:
    """The loads, where they are not all of the arm's."""
    everywhere = len(items) == sum(item.arm == items[0].arm for item in compared)
    return "" if everywhere else f" at {listed(item.load for item in items)}"


def _certainty(compared: Sequence[Comparison]) -> list[Conclusion]:
    counts = sorted({item.num_blocks for item in compared})
    if not counts or counts[0] > 2:
        return []
    if counts[0] == 1:
        text = (
            "With one launch an arm, what speculation does cannot be told from what that launch did. The intervals assume that"
            " launches differ by 10 % (s.d.), so only effects well beyond that are decided."
        )
    else:
        text = "With two launches an arm, how launches differ is known from two numbers, so the intervals are wide."
    span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return [Conclusion(text=text, evidence=(f"pairs of launches per comparison: {span}",))]
