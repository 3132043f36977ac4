"""Which arm of a run to serve, and the load point to measure it at again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from breakeven.engines.base import Arm
from breakeven.errors import UsageError
from breakeven.experiment.record import RunRecord
from breakeven.loadgen.samples import LoadPoint
from breakeven.verdict.equality.check import without_arms
from breakeven.verdict.measured.case import Case, study
from breakeven.verdict.measured.deciding import schedule
from breakeven.verdict.measured.wording import in_words, interval_of_log, load_list, ratio

__all__ = ["Choice", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`why` is one sentence; `notes` are what whoever deploys this arm should know besides."""

    arm: Arm
    load: LoadPoint
    why: str
    notes: tuple[str, ...]


def choose(record: RunRecord, arm_name: str | None = None, label: str | None = None, *, faulty: Collection[str] = ()) -> Choice:
    """The winner where the run has one, otherwise the baseline; or the arm and load point that were asked for.

    An arm wins where it is the best of those that pay. With winners at several load points the clearest win counts: the one whose
    interval of the speedup begins highest. Arms that are `faulty` (their output differs) do not win; when asked for, that is said.

    Raises:
        UsageError: no such arm or load point, or an arm that cannot be served from here.
    """
    case = study(record if arm_name is not None else without_arms(record, faulty))
    if label is not None and label not in case.loads:
        raise UsageError(f"load point {label!a}: not in this run; expected one of {', '.join(case.loads)}")
    if arm_name is not None and arm_name not in {arm.name for arm in record.arms}:
        raise UsageError(f"arm {arm_name!a}: not in this run; expected one of {', '.join(arm.name for arm in record.arms)}")
    chosen = schedule(case)
    if arm_name is not None:
        load = label or _load_for(case, chosen, arm_name)
        why = f"{arm_name}, as asked for"
    else:
        arm_name, load, why = _winner(case, chosen, label)
    arm = case.run.arm(arm_name)
    _check_servable(arm, record)
    told = tuple(
        f"{name} is not {'fit for use' if name == arm_name else 'considered'}: its output differs from plain's (breakeven equal)"
        for name in faulty
    )
    return Choice(arm=arm, load=case.run.load(load), why=why, notes=(*told, *_notes(case, chosen, arm_name)))


def _winner(case: Case, chosen: dict[str, str], label: str | None) -> tuple[str, str, str]:
    """Arm, load point and reason."""
    baseline = case.record.baseline
    wins = [case.compared[arm, load] for load, arm in chosen.items() if arm != baseline and (label is None or load == label)]
    if wins:
        best = max(wins, key=lambda won: won.log_ratio.low)
        return (
            best.arm,
            best.load,
            f"{best.arm} pays at {best.load}: {ratio(interval_of_log(best.log_ratio))} the speed of {baseline}",
        )
    looked_at = [label] if label is not None else case.loads
    is_open = any(case.outcome(compared) == "undecided" for load in looked_at for compared in case.at(load))
    compared_any = any(case.at(load) for load in looked_at)
    where = f" at {load_list(looked_at)}"
    if is_open or not compared_any:
        why = f"{baseline}, the baseline: the run is undecided{where}, and what is not known to pay is not served"
    else:
        why = f"{baseline}, the baseline: nothing measured pays{where}"
    return baseline, label or _load_for(case, chosen, baseline), why


def _load_for(case: Case, chosen: dict[str, str], arm: str) -> str:
    """Where the arm is to be run; else where it was measured; else the first load point."""
    measured = [load for load in case.loads if case.run.trials(arm, load)]
    return next((load for load in measured if chosen[load] == arm), (measured or case.loads)[0])


def _check_servable(arm: Arm, record: RunRecord) -> None:
    if arm.forced:
        raise UsageError(
            f"arm {arm.name}: its accept length is forced, so it emits junk whatever it is asked; it measures what rounds cost and "
            "is never served. Choose another --arm"
        )
    if arm.idle:
        raise UsageError(
            f"arm {arm.name}: it carries a drafter, never drafts and only measures what that costs. Choose another --arm"
        )
    if arm.url is not None:
        raise UsageError(
            f"arm {arm.name}: the run only attached to it at {arm.url}, so how it was started is not known here; "
            "start it the way it was started then, or choose another --arm"
        )
    if arm.engine == "fake":
        raise UsageError(
            f"arm {arm.name}: the fake engine only simulates, there is no server to start; measure a real engine first"
        )
    if arm.name in record.failures:
        raise UsageError(
            f"arm {arm.name}: could not be served in this run either ({record.failures[arm.name].partition('. ')[0]}); "
            "mend that and run breakeven bench again, or choose another --arm"
        )


def _is_open(case: Case, arm: str, other: str, load: str) -> bool:
    """The baseline is taken there for want of knowledge of `arm`, not because it won."""
    return other == case.record.baseline and any(
        compared.arm == arm and case.outcome(compared) == "undecided" for compared in case.at(load)
    )


def _notes(case: Case, chosen: dict[str, str], arm: str) -> tuple[str, ...]:
    notes = []
    if case.record.interrupted:
        notes.append("The run is not finished: this is the verdict so far, and breakeven bench goes on with it")
    for other in dict.fromkeys(chosen.values()):
        loads = [load for load, best in chosen.items() if best == other]
        if other == arm:
            continue
        unknown = [load for load in loads if _is_open(case, arm, other, load)]
        known = [load for load in loads if load not in unknown and case.at(load)]
        if known:
            notes.append(f"At {load_list(known)} the run says to serve {other} instead")
        if unknown:
            notes.append(f"At {load_list(unknown)} the run does not know whether {arm} pays, and keeps {other} until it does")
    if arm in case.replaced_kernels:
        notes.append(f"Its kernels are not those of any release: its speed is not that of {case.run.arm(arm).engine}")
    speculation = case.run.arm(arm).speculation
    if speculation is not None and speculation.schedule:
        note = f"Its drafts by running requests: {in_words(speculation.schedule)}"
        if case.run.arm(arm).engine == "sglang":
            note += "; they stand in the file that --speculative-adaptive-config names, which has to go with the command"
        notes.append(note)
    return tuple(notes)
