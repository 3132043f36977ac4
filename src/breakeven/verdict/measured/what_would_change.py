"""What would change a decision: the accept lengths above which drafters pay, and what the outcome rests on besides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from breakeven.costs.identity import accept_length_for
from breakeven.experiment.cost_ratios import FULLY_DRAFTED
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.floor import dead_drafters, has_random_weights
from breakeven.verdict.measured.prediction import mean_prefill_share
from breakeven.verdict.measured.wording import figure, interval_of_log, listed, percent
from breakeven.verdict.result import Interval

__all__ = ["required_length", "what_would_change_it"]


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


def what_would_change_it(case: Case, chosen: Mapping[str, str]) -> tuple[str, ...]:
    """`chosen`: the arm to run at each load point."""
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
