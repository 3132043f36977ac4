"""The decision: which arm to run at which load point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from breakeven.experiment.comparing import PAIR_ASSUMED_SD
from breakeven.experiment.summary import speed_measure
from breakeven.stats.intervals import block_interval
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.headline import headline
from breakeven.verdict.measured.what_would_change import what_would_change_it
from breakeven.verdict.measured.wording import listed, load_list

__all__ = ["Decision", "decide", "schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    headline: str
    decision: str
    what_would_change_it: tuple[str, ...]


def decide(case: Case) -> Decision:
    chosen = schedule(case)
    return Decision(
        headline=headline(case), decision=_decision(case, chosen), what_would_change_it=what_would_change_it(case, chosen)
    )


def schedule(case: Case) -> dict[str, str]:
    """Load point -> arm to run there: the best of those that pay, otherwise the baseline."""
    return {load: case.best_paying(load) or case.record.baseline for load in case.loads}


def _decision(case: Case, chosen: Mapping[str, str]) -> str:
    baseline = case.record.baseline
    unmeasured = [load for load in case.loads if case.candidates and not case.at(load)]
    undecided = [load for load in case.loads if chosen[load] == baseline and case.is_open(load)]
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


def _rival(case: Case, load: str) -> str | None:
    """The runner-up among arms that pay, where the two, compared with each other directly, cannot be told apart."""
    best, *others = [compared.arm for compared in case.at(load) if case.outcome(compared) == "pays"] or [""]
    if not others:
        return None
    blocks = case.run.paired(best, others[0], load, speed_measure(case.run.load(load), case.record.objective))
    lead = block_interval(list(blocks.values()), assumed_sd=PAIR_ASSUMED_SD)
    return None if lead.usable and lead.low > 0 else others[0]
