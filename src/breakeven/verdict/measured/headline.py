"""The headline of a run: in one line where speculation pays, by how much, and what no reader of that line may miss."""

from __future__ import annotations

import math
from collections.abc import Sequence

from breakeven.experiment.comparing import Compared
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import interval_of_log, listed, load_list, percent, ratio

__all__ = ["headline"]

# load points for which the headline gives an arm's ratio one by one
_MOST_WINS = 3


def headline(case: Case) -> str:
    return f"{_who_pays(case)}{_judged_by(case)}{_replaced(case)}"


def _who_pays(case: Case) -> str:
    everything = [compared for load in case.loads for compared in case.at(load)]
    if not case.candidates:
        return f"No drafter was measured, only what rounds cost: {_break_even_range(case)}."
    if not everything:
        if any(case.run.trials(arm.name, load) for arm in case.candidates for load in case.loads):
            return "Undecided: no arm has a figure to hold against the baseline's; see the findings."
        return "Undecided: no arm has trials that count beside the baseline's."
    paying = [best for load in case.loads for best in case.at(load) if best.arm == case.best_paying(load)]
    open_loads = [load for load in case.loads if not case.best_paying(load) and case.is_open(load)]
    settled = [load for load in case.loads if not case.best_paying(load) and load not in open_loads and case.at(load)]
    if paying:
        subject = "Speculation" if all(case.run.arm(best.arm).speculation for best in paying) else "Another arm"
        told = f"{subject} pays at {load_list([best.load for best in paying])}: {_winners(paying)}."
        if settled:
            told += f" It does not at {load_list(settled)}."
        if open_loads:
            told += f" Undecided at {load_list(open_loads)}."
        return told
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


def _told(compared: Compared) -> str:
    return f"{compared.arm} {ratio(interval_of_log(compared.log_ratio))} at {compared.load}"


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


def _judged_by(case: Case) -> str:
    """What no reader may take for throughput."""
    objective = case.record.objective
    return "" if objective.name == "throughput" else f" Judged by {objective.text}."


def _replaced(case: Case) -> str:
    """What no reader of a single line may miss."""
    engines = sorted({case.run.arm(name).engine for name in case.replaced_kernels})
    return f" Measured with replaced kernels: these are not figures of {listed(engines)}." if engines else ""
