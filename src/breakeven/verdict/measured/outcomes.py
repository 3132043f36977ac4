"""How every arm stands at each load point, by the plan's objective and by the others, in words with what they rest on."""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.units import format_rate, plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import listed, ratio
from breakeven.verdict.result import BestOfArm, Cell, Comparison, Conclusion

__all__ = ["outcomes"]

_SAID = {
    "pays": "pays",
    "slower": "is slower",
    "no useful difference": "makes no useful difference",
    "undecided": "is undecided",
}


def outcomes(
    case: Case, table: Sequence[Cell], compared: Sequence[Comparison], best: Sequence[BestOfArm]
) -> tuple[Conclusion, ...]:
    cells = {(cell.arm, cell.load): cell for cell in table}
    return (*_by_load(case, cells, compared), *_by_other_objectives(case, compared), *_capacity(best))


def _by_load(case: Case, cells: dict[tuple[str, str], Cell], compared: Sequence[Comparison]) -> list[Conclusion]:
    """One a load point, all arms that could be run, best first."""
    probes = set(case.probes)
    found = []
    for load in case.loads:
        here = sorted(
            (item for item in compared if item.load == load and item.arm not in probes), key=lambda item: -item.ratio.estimate
        )
        if here:
            found.append(
                Conclusion(
                    text=f"At {load}: {'; '.join(f'{item.arm} {_said(case, item)}, {ratio(item.ratio)}' for item in here)}.",
                    evidence=tuple(_outcome_evidence(case, cells, item) for item in here),
                )
            )
    return found


def _by_other_objectives(case: Case, compared: Sequence[Comparison]) -> list[Conclusion]:
    """Where another objective decides, and not as the plan's does."""
    found = []
    for name in dict.fromkeys(other.objective for item in compared for other in item.by_objective):
        differing = [
            (item, other)
            for item in compared
            for other in item.by_objective
            if other.objective == name and other.outcome not in (item.outcome, "undecided")
        ]
        if differing:
            told = listed(f"{item.arm} {_SAID[other.outcome]} at {item.load}, {ratio(other.ratio)}" for item, other in differing)
            found.append(
                Conclusion(
                    text=f"Judged by {name}, it would be decided otherwise: {told}.",
                    evidence=tuple(
                        f"{item.arm} at {item.load} by {case.record.objective.text}: {item.outcome}, {ratio(item.ratio)}"
                        for item, _ in differing
                    ),
                )
            )
    return found


def _said(case: Case, item: Comparison) -> str:
    return "cannot be compared" if case.is_void(item.arm, item.load) else _SAID[item.outcome or "undecided"]


def _outcome_evidence(case: Case, cells: dict[tuple[str, str], Cell], item: Comparison) -> str:
    if case.record.objective.name != "throughput":
        compared = f"{item.arm} against {item.baseline} by {case.record.objective.text}"
    elif case.run.load(item.load).rate_per_s is None:
        mine, theirs = (
            format_rate(cell.throughput.estimate) if cell is not None and cell.throughput is not None else "?"
            for cell in (cells.get((name, item.load)) for name in (item.arm, item.baseline))
        )
        compared = f"{item.arm} {mine} against {theirs} ({item.baseline})"
    else:
        compared = f"{item.arm} against {item.baseline} by the speed of whole requests, as arrivals set the throughput"
    launches = f"{plural(item.num_blocks, 'pair')} of launches" if item.num_blocks > 1 else "one launch each"
    level = "" if item.ratio.level == 0.95 else f", interval at {100 * item.ratio.level:.1f} % to pay for repeated looks"
    return f"{compared}, {launches}{level}: {item.why}"


def _capacity(best: Sequence[BestOfArm]) -> list[Conclusion]:
    """Only where the two views of fairness could differ."""
    if len(best) < 2 or len({item.load for item in best}) < 2:
        return []
    peak = format_rate(best[0].throughput.estimate)
    return [
        Conclusion(
            text=f"Each at its own best load, most tokens a second come from {best[0].arm}: {peak} at {best[0].load}.",
            evidence=tuple(f"{item.arm}: {format_rate(item.throughput.estimate)} at {item.load}" for item in best),
        )
    ]
