"""Headline and decision: which arm to run at which load point, and what would change that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from breakeven.costs.identity import accept_length_for
from breakeven.experiment.comparing import PAIR_ASSUMED_SD, Compared
from breakeven.experiment.cost_ratios import FULLY_DRAFTED
from breakeven.experiment.summary import speed_measure
from breakeven.stats.intervals import block_interval
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.floor import dead_drafters, has_random_weights
from breakeven.verdict.measured.prediction import mean_prefill_share
from breakeven.verdict.measured.wording import figure, interval_of_log, listed, load_list, percent, ratio
from breakeven.verdict.result import Interval

__all__ = ["Decision", "decide", "required_length", "schedule"]

# load points for which the headline gives an arm's ratio one by one
_MOST_WINS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    headline: str
    decision: str
    what_would_change_it: tuple[str, ...]


def decide(case: Case) -> Decision:
    return Decision(
        headline=f"{_headline(case)}{_judged_by(case)}{_replaced(case)}",
        decision=_decision(case),
        what_would_change_it=_what_would_change_it(case),
    )


def schedule(case: Case) -> dict[str, str]:
    """Load point -> arm to run there: the best of those that pay, otherwise the baseline."""
    return {load: (_best_paying(case, load) or case.record.baseline) for load in case.loads}


def required_length(case: Case, method: str, num_drafts: int, load: str, speedup: float) -> Interval | None:
    """The accept length at which such a drafter makes requests `speedup` times as fast here, prefill included.

    Where the plan judges by the speed of one request while it decodes, prefill is no part of it.
    Its interval is that of the cost ratio; the share of prefill is known far better. None where it is infinite.
    """
    cost = case.costs.pooled.get((method, num_drafts, load))
    share = 0.0 if case.record.objective.name == "request-speed" else mean_prefill_share(case.run, load)
    if cost is None or share is None or not cost.log.usable:
        return None
    factor = accept_length_for(speedup, 1.0, share)
    if not math.isfinite(factor):
        return None
    shift = math.log(factor)
    return interval_of_log(replace(cost.log, value=cost.log.value + shift, low=cost.log.low + shift, high=cost.log.high + shift))


def _judged_by(case: Case) -> str:
    """What no reader may take for throughput."""
    objective = case.record.objective
    return "" if objective.name == "throughput" else f" Judged by {objective.text}."


def _best_paying(case: Case, load: str) -> str | None:
    return next((compared.arm for compared in case.at(load) if case.outcome(compared) == "pays"), None)


def _told(compared: Compared) -> str:
    return f"{compared.arm} {ratio(interval_of_log(compared.log_ratio))} at {compared.load}"


def _headline(case: Case) -> str:
    everything = [compared for load in case.loads for compared in case.at(load)]
    if not case.candidates:
        return f"No drafter was measured, only what rounds cost: {_break_even_range(case)}."
    if not everything:
        if any(case.run.trials(arm.name, load) for arm in case.candidates for load in case.loads):
            return "Undecided: no arm has a figure to hold against the baseline's; see the findings."
        return "Undecided: no arm has trials that count beside the baseline's."
    paying = [best for load in case.loads for best in case.at(load) if best.arm == _best_paying(case, load)]
    open_loads = [load for load in case.loads if not _best_paying(case, load) and _is_open(case, load)]
    settled = [load for load in case.loads if not _best_paying(case, load) and load not in open_loads and case.at(load)]
    if paying:
        subject = "Speculation" if all(case.run.arm(best.arm).speculation for best in paying) else "Another arm"
        headline = f"{subject} pays at {load_list([best.load for best in paying])}: {_winners(paying)}."
        if settled:
            headline += f" It does not at {load_list(settled)}."
        if open_loads:
            headline += f" Undecided at {load_list(open_loads)}."
        return headline
    best = max(everything, key=lambda compared: compared.log_ratio.value)
    subject = "Speculation does not pay" if all(arm.speculation for arm in case.candidates) else "No arm pays"
    if settled and not open_loads:
        return f"{subject} at any load measured: the best is {_told(best)}."
    if settled:
        return f"{subject} at {load_list(settled)}; undecided at {load_list(open_loads)}. The best is {_told(best)}."
    if case.impossible and set(open_loads) <= set(case.impossible):
        return f"Undecided: the baseline cannot be right at {listed(case.impossible)}."
    if all(compared.not_comparable for compared in everything):
        return "Undecided: no arm ran as many requests at once as the baseline."
    return f"Undecided: the best is {_told(best)}, an interval that the threshold of {percent(case.record.threshold)} cuts through."


def _break_even_range(case: Case) -> str:
    """The lowest and the highest break-even accept length with where they hold."""
    points = sorted(
        (cost.log.value, num_drafts, load) for (_, num_drafts, load), cost in case.costs.pooled.items() if cost.log.usable
    )
    if not points:
        return "and no break-even accept length could be worked out"
    told = [
        f"{math.exp(log):.2f} at {load} with {plural(num_drafts, 'draft')}" for log, num_drafts, load in (points[0], points[-1])
    ]
    return (
        f"the break-even accept length is {told[0]}"
        if len(points) == 1
        else f"break-even accept lengths run from {told[0]} to {told[1]}"
    )


def _replaced(case: Case) -> str:
    """What no reader of a single line may miss."""
    engines = sorted({case.run.arm(name).engine for name in case.replaced_kernels})
    return f" Measured with replaced kernels: these are not figures of {listed(engines)}." if engines else ""


def _winners(paying: Sequence[Compared]) -> str:
    """ "eagle 1.58x (1.47 to 1.69)"; "eagle 1.58x (...) at c=1 and 1.38x (...) at c=4"; "eagle 1.38x to 1.60x" for many."""
    if len(paying) == 1:
        return f"{paying[0].arm} {ratio(interval_of_log(paying[0].log_ratio))}"
    told = []
    for arm in dict.fromkeys(best.arm for best in paying):
        mine = [(best.load, interval_of_log(best.log_ratio)) for best in paying if best.arm == arm]
        if len(mine) <= _MOST_WINS:
            told.append(f"{arm} {listed(f'{ratio(interval)} at {load}' for load, interval in mine)}")
        else:
            ratios = [interval.estimate for _, interval in mine]
            told.append(f"{arm} {min(ratios):.2f}x to {max(ratios):.2f}x")
    return "; ".join(told)


def _decision(case: Case) -> str:
    chosen, baseline = schedule(case), case.record.baseline
    unmeasured = [load for load in case.loads if case.candidates and not case.at(load)]
    undecided = [load for load in case.loads if chosen[load] == baseline and _is_open(case, load)]
    settled = [load for load in case.loads if chosen[load] == baseline and load not in (*undecided, *unmeasured)]
    told = [
        f"Run {arm} {_where(case, [load for load in case.loads if chosen[load] == arm])}."
        for arm in dict.fromkeys(chosen.values())
        if arm != baseline
    ]
    if settled and not case.candidates:
        told.append(
            f"Keep {baseline} {_where(case, settled)} until a drafter is measured;"
            " breakeven predict --from-run says what one of known acceptance would gain."
        )
    elif settled:
        told.append(f"Run {baseline} {_where(case, settled)}: nothing measured pays there.")
    if undecided:
        arms = dict.fromkeys(item.arm for load in undecided for item in case.at(load) if case.outcome(item) == "undecided")
        told.append(f"Keep {baseline} {_where(case, undecided)} until {listed(arms)} can be judged.")
    if unmeasured:
        told.append(f"Keep {baseline} {_where(case, unmeasured)}: nothing there can be compared yet.")
    rivals = {load: rival for load in case.loads if (rival := _rival(case, load))}
    if rivals:
        named = (
            f"{arm} at {load_list([load for load, rival in rivals.items() if rival == arm])}"
            for arm in dict.fromkeys(rivals.values())
        )
        told.append(f"As good, as far as can be told: {'; '.join(named)}.")
    return " ".join(told)


def _where(case: Case, loads: Sequence[str]) -> str:
    if len(loads) == len(case.loads) > 1:
        return f"at every load measured ({load_list(loads)})"
    return f"at {load_list(loads)}"


def _is_open(case: Case, load: str) -> bool:
    return any(case.outcome(compared) == "undecided" for compared in case.at(load))


def _rival(case: Case, load: str) -> str | None:
    """The runner-up among arms that pay, where the two, compared with each other directly, cannot be told apart."""
    best, *others = [compared.arm for compared in case.at(load) if case.outcome(compared) == "pays"] or [""]
    if not others:
        return None
    blocks = case.run.paired(best, others[0], load, speed_measure(case.run.load(load), case.record.objective))
    lead = block_interval(list(blocks.values()), assumed_sd=PAIR_ASSUMED_SD)
    return None if lead.usable and lead.low > 0 else others[0]


def _what_would_change_it(case: Case) -> tuple[str, ...]:
    chosen = schedule(case)
    changes = [_price_of(case, method, drafts, load, chosen[load]) for method, drafts, load in case.costs.pooled]
    changes += _prices_without_drafter(case)
    if case.record.objective.name == "goodput":
        # which accept length keeps how many answers within limits does not follow from c
        changes = []
    for load, arm in chosen.items():
        length = case.lengths.get((arm, load))
        speculation = case.run.arm(arm).speculation
        if speculation is None or speculation.schedule:
            continue  # a schedule rests where it was told to, whatever the traffic
        if length is not None and length.counts.drafted_share < FULLY_DRAFTED:
            share = percent(length.counts.drafted_share)
            changes.append(f"At {load} {arm} gains only while traffic repeats itself as here, where it drafts at {share} of steps")
    undecided = [item for load in case.loads for item in case.at(load) if case.outcome(item) == "undecided"]
    void = [item for item in undecided if case.is_void(item.arm, item.load)]
    if len(void) < len(undecided):
        changes.append("More launches, where the outcome is undecided")
    if void:
        changes.append(f"A comparison on equal terms of {listed(dict.fromkeys(f'{item.arm} at {item.load}' for item in void))}")
    return tuple(filter(None, changes))


def _prices_without_drafter(case: Case) -> list[str]:
    """What a drafter would have to reach at each load, for numbers of drafts that only forced arms had."""
    measured = {
        (arm.speculation.method, arm.speculation.num_draft_tokens, load)
        for arm in case.candidates
        if arm.speculation is not None and not arm.speculation.schedule
        for load in case.loads
        if (arm.name, load) in case.lengths
    }
    told: dict[str, list[str]] = {}
    for method, num_drafts, load in sorted(case.costs.pooled, key=lambda key: key[1]):
        needed = required_length(case, method, num_drafts, load, 1 + case.record.threshold)
        possible = needed is not None and (needed.low is None or needed.low <= num_drafts + 1)
        if needed is not None and possible and (method, num_drafts, load) not in measured:
            told.setdefault(load, []).append(f"{figure(needed)} with {plural(num_drafts, 'draft')} a round")
    return [
        f"At {load} a drafter pays above accept length {listed(told[load])}; none was measured"
        for load in case.loads
        if load in told
    ]


def _price_of(case: Case, method: str, num_drafts: int, load: str, chosen: str) -> str:
    """The accept length that pays here, and how the best arm with such drafts stands to it."""
    needed = required_length(case, method, num_drafts, load, 1 + case.record.threshold)
    if needed is None:
        return ""
    drafts = plural(num_drafts, "draft")
    if needed.low is not None and needed.low > num_drafts + 1:
        return (
            f"At {load} no drafter with {drafts} a round can pay: it would need accept length {figure(needed)} of at most"
            f" {num_drafts + 1}; try fewer drafts"
        )
    arms = [
        arm.name
        for arm in case.candidates
        if arm.speculation is not None
        and not arm.speculation.schedule
        and (arm.speculation.method, arm.speculation.num_draft_tokens) == (method, num_drafts)
        and (arm.name, load) in case.lengths
    ]
    if not arms:
        return ""
    best = max(arms, key=lambda arm: (arm == chosen, case.lengths[arm, load].value))
    reached = figure(case.lengths[best, load].interval)
    if best == chosen:
        return (
            f"At {load} {best} stops paying below accept length {figure(needed)}; it has {reached} on these prompts, and other"
            " traffic or sampling may give less"
        )
    if has_random_weights(case, best):
        reached = "1.00, having random weights"
    elif best in dead_drafters(case):
        reached = "1.00, which more training does not mend: see the findings"
    return f"At {load} a drafter with {drafts} a round pays above accept length {figure(needed)}; {best} reaches {reached}"
