"""Headline and decision from reported figures.

Without intervals speculation is said to pay, or not, only from fair comparisons of arms whose drafter works. Otherwise the question
is undecided, and the decision is only which of the measured arms to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.units import format_ratio
from breakeven.verdict.reported.arms import ReportedArm
from breakeven.verdict.reported.baselines import PLAIN_NOT_IN_TABLE
from breakeven.verdict.reported.case import Case, at_loads, listed, only_lengths, speed, unlike_in
from breakeven.verdict.reported.comparing import Pair
from breakeven.verdict.reported.likeness import same_setting
from breakeven.verdict.reported.next_steps import next_measurements, what_would_change_it
from breakeven.verdict.reported.readings import lies_at_floor
from breakeven.verdict.reported.why_undecided import why_undecided
from breakeven.verdict.reported.without_interval import outcome_without_interval
from breakeven.verdict.reported.wording import engine_name

__all__ = ["Decision", "decide"]

SEVERAL = 2
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
        what_would_change_it=what_would_change_it(case, pairs, none_pays),
        next_measurements=next_measurements(case, bool(paying)),
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
    headline = f"As reported, speculation pays{_on(case, paying)} at {at_loads(paying)}: {where}."
    if lost:
        headline += f" It is slower{_on(case, lost)} at {at_loads(lost)}."
    runs = [_run(case, [w for w in winners if w.arm.name == name]) for name in dict.fromkeys(pair.arm.name for pair in winners)]
    decision = f"Run {listed(runs)}"
    only_lost = [pair for pair in lost if pair.load not in loads]
    if only_lost:
        decision += f", and {listed(pair.baseline.name for pair in only_lost)} at {at_loads(only_lost)}"
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
        f"{other} at {at_loads(pairs)}, the fastest measured there ({mine} if it has to be {engine})"
        if other
        else f"{mine} at {at_loads(pairs)}"
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
    said = f" Nothing follows from {at_loads(unfair)}, where arms were not shown to run at equal load." if unfair else ""
    odd = [pair for pair in case.pairs if pair.contradiction]
    if odd:
        said += f" At {at_loads(odd)} the reported speedup is not that of the speeds."
    if unlike:
        how = "requests were of different lengths" if only_lengths(unlike) else "arms were not measured alike"
        said += f" Nothing follows from {at_loads(unlike)}, where {how}."
    failing = list(case.failing_pairs)
    if failing:
        said += f" At {at_loads(failing)} {listed(pair.arm.name for pair in failing)} accepted next to nothing: a fault."
    if broken:
        said += f" At {at_loads(broken)} the baseline, or the accept length, cannot be right."
    return said


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
    return f"Undecided whether speculation pays: {why_undecided(case, pairs)}.", run
