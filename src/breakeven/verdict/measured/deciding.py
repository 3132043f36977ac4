"""Headline and decision: which arm to run at which load point, and what would change that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.costs.identity import accept_length_for
from breakeven.experiment.comparing import Compared
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.findings import dead_drafters
from breakeven.verdict.measured.prediction import mean_prefill_share
from breakeven.verdict.measured.wording import figure, interval_of_log, listed, plural, ratio

__all__ = ["Decision", "decide", "required_length", "schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    headline: str
    decision: str
    what_would_change_it: tuple[str, ...]


def decide(case: Case) -> Decision:
    return Decision(headline=_headline(case), decision=_decision(case), what_would_change_it=_what_would_change_it(case))


def schedule(case: Case) -> dict[str, str]:
    """Load point -> arm to run there: the best of those that pay, otherwise the baseline."""
    return {load: (_best_paying(case, load) or case.record.baseline) for load in case.loads}


def required_length(case: Case, method: str, num_drafts: int, load: str, speedup: float) -> float | None:
    """The accept length at which such a drafter makes requests `speedup` times as fast here, prefill included."""
    cost = case.costs.pooled.get((method, num_drafts, load))
    share = mean_prefill_share(list(case.run.trials(case.record.baseline, load)))
    if cost is None or share is None or not cost.log.usable:
        return None
    return accept_length_for(speedup, interval_of_log(cost.log).estimate, share)


def _best_paying(case: Case, load: str) -> str | None:
    return next((compared.arm for compared in case.at(load) if case.outcome(compared) == "pays"), None)


def _told(compared: Compared) -> str:
    return f"{compared.arm} {ratio(interval_of_log(compared.log_ratio))} at {compared.load}"


def _headline(case: Case) -> str:
    everything = [compared for load in case.loads for compared in case.at(load)]
    if not case.candidates:
        return "No arm was compared with the baseline: only forced arms were measured, which say what rounds cost."
    if not everything:
        return "Undecided: no arm has trials that count beside the baseline's."
    subject = "Speculation" if all(arm.speculation is not None for arm in case.candidates) else "Another arm"
    paying = [best for load in case.loads for best in case.at(load) if best.arm == _best_paying(case, load)]
    open_loads = [load for load in case.loads if not _best_paying(case, load) and _is_open(case, load)]
    settled = [load for load in case.loads if not _best_paying(case, load) and load not in open_loads and case.at(load)]
    if paying:
        headline = f"{subject} pays at {listed(best.load for best in paying)}: {_winners(paying)}."
        if settled:
            headline += f" It does not at {listed(settled)}."
        if open_loads:
            headline += f" Undecided at {listed(open_loads)}."
        return headline
    best = max(everything, key=lambda compared: compared.log_ratio.value)
    if settled and not open_loads:
        return f"{subject} does not pay at any load measured: the best is {_told(best)}."
    if settled:
        return f"{subject} does not pay at {listed(settled)} and is undecided at {listed(open_loads)}; the best is {_told(best)}."
    if case.impossible and set(open_loads) <= set(case.impossible):
        return f"Undecided: the baseline cannot be right at {listed(case.impossible)}."
    if all(compared.not_comparable for compared in everything):
        return "Undecided: no arm ran as many requests at once as the baseline."
    return f"Undecided: the best is {_told(best)}, which still allows either answer at a threshold of {case.record.threshold:.0%}."


def _winners(paying: Sequence[Compared]) -> str:
    """ "eagle 1.58x (1.47 to 1.69)" for one load point, "eagle 1.58x (...) at c=1 and 1.38x (...) at c=4" for several."""
    if len(paying) == 1:
        return f"{paying[0].arm} {ratio(interval_of_log(paying[0].log_ratio))}"
    told = []
    for arm in dict.fromkeys(best.arm for best in paying):
        mine = (f"{ratio(interval_of_log(best.log_ratio))} at {best.load}" for best in paying if best.arm == arm)
        told.append(f"{arm} {listed(mine)}")
    return "; ".join(told)


def _is_open(case: Case, load: str) -> bool:
    return any(case.outcome(compared) == "undecided" for compared in case.at(load))


def _decision(case: Case) -> str:
    chosen = schedule(case)
    baseline = case.record.baseline
    runs = [f"{arm} at {listed(load for load, name in chosen.items() if name == arm)}" for arm in dict.fromkeys(chosen.values())]
    everywhere = len(set(chosen.values())) == 1
    if everywhere and len(chosen) > 1:
        (arm,) = set(chosen.values())
        text = f"Run {arm} at every load measured ({listed(chosen)})."
    else:
        text = f"Run {listed(runs)}."
    doubts = []
    for load, arm in chosen.items():
        open_arms = [compared.arm for compared in case.at(load) if case.outcome(compared) == "undecided"]
        if arm == baseline and open_arms:
            doubts.append(f"{listed(open_arms)} at {load}")
        rival = _rival(case, load)
        if rival:
            text += f" {rival} may be as good at {load}: their intervals overlap."
    if doubts:
        text += f" {baseline} stays where it is undecided: {'; '.join(doubts)}."
    return text


def _rival(case: Case, load: str) -> str | None:
    """The runner-up among arms that pay, where the two cannot be told apart."""
    paying = [compared for compared in case.at(load) if case.outcome(compared) == "pays"]
    if len(paying) > 1 and paying[1].log_ratio.high > paying[0].log_ratio.low:
        return paying[1].arm
    return None


def _what_would_change_it(case: Case) -> tuple[str, ...]:
    changes = []
    upper = 1 + case.record.threshold
    dead = set(dead_drafters(case))
    for method, num_drafts, load in case.costs.pooled:
        needed = required_length(case, method, num_drafts, load, upper)
        if needed is None:
            continue
        real = [
            (arm.name, case.lengths[arm.name, load].interval)
            for arm in case.candidates
            if arm.speculation is not None
            and (arm.speculation.method, arm.speculation.num_draft_tokens) == (method, num_drafts)
            and (arm.name, load) in case.lengths
        ]
        drafts = plural(num_drafts, "draft")
        if needed > num_drafts + 1:
            changes.append(
                f"At {load} no drafter with {drafts} a round can pay: it would need accept length {needed:.2f} of at most"
                f" {num_drafts + 1}; try fewer drafts"
            )
            continue
        best = max(real, key=lambda item: item[1].estimate, default=None)
        if best is None:
            changes.append(f"At {load} a drafter with {drafts} a round pays above accept length {needed:.2f}; none was measured")
        elif best[1].estimate < needed:
            state = f"{best[0]} reaches {figure(best[1])}"
            if best[0] in dead:
                state = f"{best[0]} reaches 1.00, which more training does not mend: see the findings"
            changes.append(f"At {load} a drafter with {drafts} a round pays above accept length {needed:.2f}; {state}")
        else:
            changes.append(
                f"At {load} {best[0]} stops paying below accept length {needed:.2f}; it has {figure(best[1])} on these prompts, and"
                " other traffic or sampling may give less"
            )
    if any(case.outcome(compared) == "undecided" for load in case.loads for compared in case.at(load)):
        changes.append("More launches, where the outcome is undecided")
    return tuple(changes)
