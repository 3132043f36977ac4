"""Headline, decision, what would change it and what to measure next, from reported figures.

Without intervals speculation is said to pay, or not, only from fair comparisons of arms whose drafter works. Otherwise the question
is undecided, and the decision is only which of the measured arms to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.engines.version_facts import admission_flag, forced_acceptance
from breakeven.units import format_ratio
from breakeven.verdict.reported.arms import LoadKey, ReportedArm
from breakeven.verdict.reported.case import Case, listed, speed, unlike_in
from breakeven.verdict.reported.comparing import PLAIN_NOT_IN_TABLE, Pair, outcome_without_interval
from breakeven.verdict.reported.likeness import is_of_lengths, same_setting
from breakeven.verdict.reported.readings import lies_at_floor
from breakeven.verdict.reported.wording import engine_name, percent_change

__all__ = ["Decision", "decide"]

SEVERAL = 2
WORKLOADS_NAMED = 2
MARGINS_TOLD = 3
_PREDICTED_WORDS = {"pays": "pays", "slower": "slower, do not use it"}


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
    winners = [max((pair for pair in paying if pair.load == load), key=lambda pair: (_speed(pair), pair.ratio)) for load in loads]
    won = {(pair.arm.engine, pair.load) for pair in paying}
    others = [pair for pair in case.telling_pairs if (pair.arm.engine, pair.load) not in won]
    lost = [
        pair
        for pair in others
        if all(p.outcome == "slower" for p in others if (p.arm.engine, p.load) == (pair.arm.engine, pair.load))
    ]
    where = f"best {best.arm.name}, {format_ratio(best.ratio)} at {best.load.label}"
    headline = f"As reported, speculation pays{_on(case, paying)} at {_at(paying)}: {where}."
    if lost:
        headline += f" It is slower{_on(case, lost)} at {_at(lost)}."
    runs = [_run(case, [w for w in winners if w.arm.name == name]) for name in dict.fromkeys(pair.arm.name for pair in winners)]
    decision = f"Run {listed(runs)}"
    only_lost = [pair for pair in lost if pair.load not in loads]
    if only_lost:
        decision += f", and {listed(pair.baseline.name for pair in only_lost)} at {_at(only_lost)}"
    open_loads = {point.load for arm in case.arms for point in arm.points} - {pair.load for pair in (*winners, *lost)}
    if open_loads:
        decision += "; elsewhere the table does not decide"
    elif {load.concurrency for load in loads} == {1} and not lost:
        decision += "; of more than one request at a time the table says nothing"
    return headline + _suspicious(case, winners) + _not_counted(case), f"{decision}."


def _suspicious(case: Case, winners: list[Pair]) -> str:
    won = {pair.arm.name for pair in winners}
    full = [r.arm.name for r in case.readings if r.is_at_ceiling and r.arm.name in won]
    odd = [r.arm.name for r in case.readings if r.overall.status == "contradictory" and r.arm.name in won]
    said = f" {listed(full)} accepted every draft, as degenerate output does: read the output before trusting this." if full else ""
    if odd:
        said += f" What {listed(odd)} printed cannot be right, so its flags may not be those reported."
    return said + _by_request_speed(winners)


def _by_request_speed(pairs: Sequence[Pair]) -> str:
    """Where the speed of one request would decide the other way."""
    other = [
        pair
        for pair in pairs
        if pair.other_ratio is not None and outcome_without_interval(pair.other_ratio, 0.0)[0] not in {pair.outcome, "undecided"}
    ]
    told = listed(f"{pair.arm.name} {format_ratio(pair.other_ratio or 0.0)} at {pair.load.label}" for pair in other)
    return f" That is throughput; by the speed of one request it is {told}." if told else ""


def _speed(pair: Pair) -> float:
    point = pair.arm.point(pair.load)
    return speed(point) if point is not None else 0.0


def _on(case: Case, pairs: list[Pair]) -> str:
    """The engines, where arms that speculate were compared on several."""
    if len({pair.arm.engine for pair in case.telling_pairs}) < SEVERAL:
        return ""
    return f" on {listed(engine_name(pair.arm.engine) for pair in pairs)}"


def _run(case: Case, wins: list[Pair]) -> str:
    """One arm and the loads it is run at; an arm of another engine that is plainly faster there goes before it."""
    mine, engine = wins[0].arm.name, engine_name(wins[0].arm.engine)
    at: dict[str, list[Pair]] = {}
    for win in wins:
        faster = _faster_elsewhere(case, win)
        at.setdefault(faster.name if faster is not None else "", []).append(win)
    return listed(
        f"{other} at {_at(pairs)}, the fastest measured there ({mine} if it has to be {engine})"
        if other
        else f"{mine} at {_at(pairs)}"
        for other, pairs in at.items()
    )


def _faster_elsewhere(case: Case, win: Pair) -> ReportedArm | None:
    """The fastest arm at that load if another engine's, on as many GPUs and the same weights, leads by more than the drift."""
    mine = win.arm.point(win.load)
    rivals = []
    for arm in case.arms:
        point = arm.point(win.load)
        if mine is None or point is None or arm.engine == win.arm.engine or not same_setting(arm, win.arm):
            continue
        if (point.throughput is None) != (mine.throughput is None) or arm.name in {r.arm.name for r in case.floored}:
            continue
        rivals.append((speed(point), arm))
    fastest, arm = max(rivals, key=lambda entry: entry[0], default=(0.0, win.arm))
    return arm if mine is not None and fastest > speed(mine) * (1.0 + LAUNCH_DRIFT[0]) else None


def _none_pays(case: Case, pairs: tuple[Pair, ...]) -> tuple[str, str]:
    best = max(pairs, key=lambda pair: pair.ratio)
    headline = f"As reported, no configuration pays: the best is {best.arm.name}, {format_ratio(best.ratio)} at {best.load.label}."
    if all(pair.accept_length is None for pair in pairs):
        headline += " How much was accepted is not known, so a drafter that is wired wrongly is not ruled out."
        at_floor = [r.arm.name for r in case.readings if any(lies_at_floor(c.accept_length) for c in r.overall.candidates)]
        if at_floor:
            headline += f" By one meaning of what {listed(at_floor)} printed, no draft was ever accepted."
    return headline + _by_request_speed(pairs) + _not_counted(case), f"Run plain decoding ({_plain_arms(case, pairs)})."


def _plain_arms(case: Case, pairs: tuple[Pair, ...]) -> str:
    """The baselines; the fastest alone, where speed can choose among them."""
    names = tuple(dict.fromkeys(pair.baseline.name for pair in pairs))
    if names == (PLAIN_NOT_IN_TABLE,):
        return "its speed is not in the table"
    load, ranked = case.ranking()
    among = [entry for entry in ranked if entry[0].name in names]
    if load is None or len(names) == 1 or len(among) < len(names) or unlike_in(among):
        return listed(names)
    return f"{among[0][0].name}, the fastest of them at {load.label}"


def _not_counted(case: Case) -> str:
    """Loads whose comparisons were left out, and why."""
    unfair = [pair for pair in case.pairs if pair.admission.is_equal is not True]
    broken = [pair for pair in case.pairs if pair.is_impossible]
    unlike = [pair for pair in case.pairs if pair.unlike and pair not in unfair]
    said = f" Nothing follows from {_at(unfair)}, where arms were not shown to run at equal load." if unfair else ""
    odd = [pair for pair in case.pairs if pair.contradiction]
    if odd:
        said += f" At {_at(odd)} the reported speedup is not that of the speeds."
    if unlike:
        how = "requests were of different lengths" if _only_lengths(unlike) else "arms were not measured alike"
        said += f" Nothing follows from {_at(unlike)}, where {how}."
    failing = list(case.failing_pairs)
    if failing:
        said += f" At {_at(failing)} {listed(pair.arm.name for pair in failing)} accepted next to nothing: a fault."
    if broken:
        said += f" At {_at(broken)} the baseline, or the accept length, cannot be right."
    return said


def _only_lengths(pairs: Sequence[Pair]) -> bool:
    return all(is_of_lengths(pair.unlike) for pair in pairs)


def _undecided(case: Case, pairs: tuple[Pair, ...]) -> tuple[str, str]:
    load, ranked = case.ranking()
    run = "No speed was reported: there is nothing to choose between."
    if load is not None:
        top = ranked[0][0].name
        run = f"Of the arms measured, run {top}, the fastest at {load.label}."
        if len(ranked) == 1:
            run = "Nothing to choose between: no two arms were reported at one load."
        unproven = case.unproven_lead(top, load)
        unlike = unlike_in(ranked)
        if unlike:
            differ = {"hardware": "on the same hardware as", "GPUs": "on as many GPUs as"}.get(unlike, "with the same weights as")
            run = f"Of the arms measured, {top} is the fastest at {load.label}, but not {differ} the others."
        elif unproven is not None:
            lead = f"{format_ratio(unproven.ratio)} over {unproven.baseline.name} is undecided"
            run = f"{top} is the fastest at {load.label}, but {lead}: measure that before changing to it."
        if top in {reading.arm.name for reading in case.floored}:
            run = f"{top} is the fastest at {load.label}, with a drafter that brings it nothing: run it without, and measure that."
    if not case.readings:
        return "No arm speculates, so nothing is said about speculation.", run
    predicted = [prediction for prediction in case.predictions if prediction.outcome != "undecided"]
    if predicted and not case.pairs:
        told = [
            f"{p.arm.name} {format_ratio(p.ratio)} at {p.load.label} ({_PREDICTED_WORDS.get(p.outcome, 'too near to call')})"
            for p in case.predictions
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
        how = "with requests of different lengths" if _only_lengths(odd) else "under different conditions"
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


def _what_would_change_it(case: Case, pairs: tuple[Pair, ...], none_pays: bool) -> tuple[str, ...]:
    lines = []
    margins = []
    for cost in case.costs:
        reading = case.reading(cost.arm)
        length = reading.accept_length(cost.load) if reading is not None else None
        # no accept length lies below one, so a round as cheap as a step cannot fail to pay
        if length is not None and cost.value > 1.0:
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
    full = [reading.arm.name for reading in case.readings if reading.is_at_ceiling]
    if full:
        steps.append(f"Nothing to run: read the output of {listed(full)}, which accepted every draft.")
    failing = list(case.failing_pairs)
    if failing:
        steps.append(
            f"{listed(p.arm.name for p in failing)} at {_at(failing)} on the prompts of the other loads, with another attention "
            "backend: the accept length must not depend on load."
        )
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
    elif case.without_baseline:
        lonely = listed(arm.name for arm in case.without_baseline)
        steps.append(f"Plain decoding beside {lonely}: same engine, release, hardware, split, weights and concurrencies.")
    elif case.readings and not case.pairs and case.plain:
        arms = listed([*(arm.name for arm in case.plain), *(reading.arm.name for reading in case.readings)])
        steps.append(f"{arms} at one and the same concurrency, on the same prompts: nothing else can be compared.")
    unlike = [pair for pair in case.pairs if pair.unlike]
    if unlike:
        arms = listed([*(pair.baseline.name for pair in unlike), *(pair.arm.name for pair in unlike)])
        how = "on the same prompts with equally many output tokens" if _only_lengths(unlike) else "again, measured alike"
        steps.append(f"{arms} {how}.")
    known = {cost.load.concurrency for cost in case.costs}
    loads = {point.load.concurrency for reading in case.readings for point in reading.arm.points} or {None}
    if case.pairs and loads == {1}:
        steps.append("The same arms at the concurrencies that are served: the cost of a round changes with load.")
    if case.readings and (None in loads or loads == {1} or not loads <= known):
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
