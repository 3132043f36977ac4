"""What to measure next, cheapest first: what costs no server, then no new launch, then launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from breakeven.doctor.checklist import static_checks
from breakeven.stats.decision import MAX_FURTHER_LAUNCHES
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.floor import dead_drafters, has_random_weights
from breakeven.verdict.measured.wording import listed
from breakeven.verdict.result import Comparison

__all__ = ["next_measurements"]


def next_measurements(case: Case, compared: Sequence[Comparison]) -> tuple[str, ...]:
    return (
        *_without_servers(case),
        *_as_planned(case),
        *_more_launches(case, compared),
        *_missing_arms(case),
        *_other_traffic(case),
    )


def _without_servers(case: Case) -> list[str]:
    steps = []
    for name in dead_drafters(case):
        speculation = case.run.arm(name).speculation
        if speculation is not None and not has_random_weights(case, name):
            steps.append(
                f"Read the files and the launch of {name}, no server needed (breakeven doctor does):"
                f" {'; '.join(static_checks(speculation.method))}"
            )
    steps += [f"Mend {name} and run the plan again; the trials of the others are kept" for name in case.record.failures]
    return steps


def _as_planned(case: Case) -> list[str]:
    steps = []
    if case.record.interrupted:
        steps.append("Run the same bench command again: it goes on where it stopped")
    unequal = list(dict.fromkeys(arm for (arm, _), item in case.compared.items() if item.not_comparable))
    if unequal:
        steps.append(f"Measure {listed(unequal)} and {case.record.baseline} with equal limits and enough cache memory")
    if case.impossible:
        steps.append(f"Measure {case.record.baseline} at {listed(case.impossible)} again on a quiet machine")
    return steps


def _more_launches(case: Case, compared: Sequence[Comparison]) -> list[str]:
    """Undecided comparisons, those that need fewest launches first; the hopeless ones apart, and called so."""
    left_out = {*case.probes, *dead_drafters(case)}
    undecided = [
        item
        for item in compared
        if item.outcome == "undecided" and item.arm not in left_out and not case.is_void(item.arm, item.load)
    ]
    by_number: dict[int, list[str]] = defaultdict(list)
    for item in undecided:
        by_number[item.launches_to_decide or 0].append(f"{item.arm} at {item.load}")
    hopeless = by_number.pop(0, [])
    steps = []
    if by_number:
        told = "; ".join(f"{number} for {listed(names)}" for number, names in sorted(by_number.items()))
        guess = ", reckoned with an assumed spread of launches" if any(item.num_blocks == 1 for item in undecided) else ""
        steps.append(f"More launches an arm: these would probably decide (4 times in 5{guess}): {told}")
    if hopeless:
        steps.append(
            f"{listed(hopeless)} would take more than {MAX_FURTHER_LAUNCHES} further launches: the difference is within the noise"
            " of the threshold. Lengthen the windows, quieten the machine, or let it be"
        )
    return steps


def _missing_arms(case: Case) -> list[str]:
    missing = {
        (arm.speculation.method, arm.speculation.num_draft_tokens)
        for arm in case.candidates
        if arm.speculation is not None and arm.speculation.method != "ngram"
    } - {(arm.speculation.method, arm.speculation.num_draft_tokens) for arm in case.forced if arm.speculation is not None}
    return [
        f"Add an arm with forced acceptance, {method} with {plural(drafts, 'draft')}: it measures the break-even accept length"
        " apart from how good a drafter is"
        for method, drafts in sorted(missing)
    ]


def _other_traffic(case: Case) -> list[str]:
    speculating = any(arm.speculation is not None for arm in case.candidates)
    if speculating and all(load.temperature == 0 for load in case.record.loads):
        return [
            "Measure with the temperature and top_p of your traffic, on your own prompts (--prompts): acceptance depends on both"
        ]
    return []
