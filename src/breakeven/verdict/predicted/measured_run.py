"""A prediction from a measured run: its break-even accept lengths, and the schedule that a drafter's acceptance makes of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.measured_surface import Jump, MeasuredSurface
from breakeven.costs.payoff import payoff
from breakeven.costs.schedule import Schedule, Stretch, make_schedule
from breakeven.costs.surface import Cost
from breakeven.errors import UsageError
from breakeven.experiment.cost_ratios import measure_costs
from breakeven.experiment.curving import surface_of
from breakeven.experiment.record import RunRecord
from breakeven.experiment.summary import RunSummary, log_decode_time_per_token
from breakeven.units import plural
from breakeven.verdict.predicted.result import (
    DraftsByBatch,
    FixedDrafts,
    PredictedSchedule,
    Prediction,
    Range,
    Unpredicted,
)
from breakeven.verdict.predicted.surfaces import batch_predictions, headline, with_times

__all__ = ["PADDING_HIDDEN", "jump_text", "measured_surface", "predict_from_run", "schedule_from"]

METHODS = ("eagle3", "ngram")

PADDING_HIDDEN = (
    "each measured number of drafts has twice the tokens of the one before, so an engine that pads to powers of two would show a "
    "line all the same, and cost more between its points than is read off"
)


def measured_surface(record: RunRecord) -> MeasuredSurface:
    """What the run's arms showed c to be, by forced acceptance where there was any.

    Raises:
        UsageError: no arm measured it.
    """
    run = RunSummary(record)
    costs = measure_costs(run)
    for method in METHODS:
        surface = surface_of(run, costs, method)
        if surface.measured:
            return surface
    raise UsageError(
        f"run {record.name}: no arm shows what a round costs. Measure a plan with `curve: true` (docs/curve.md), or with arms "
        "whose accept length is forced, in closed loop"
    )


def predict_from_run(
    record: RunRecord, acceptance: AcceptanceCurve | None, batches: Sequence[int], drafts: Sequence[int], *, threshold: float
) -> Prediction:
    """c wherever the run measured it or lies between, and with `acceptance` the speedups and the schedule."""
    surface = measured_surface(record)
    asked = tuple(batches) or surface.batches
    numbers = tuple(drafts) or _between(surface)
    found, unknown = batch_predictions(surface, acceptance, asked, numbers, threshold=threshold)
    plain_steps = _plain_steps(record)
    found = tuple(with_times(batch, plain_steps.get(batch.batch)) for batch in found)
    schedule = None
    if acceptance is not None and found:
        made = schedule_from(surface, acceptance, [batch.batch for batch in found], numbers, threshold=threshold)
        schedule = _shown(made, idle_at=sorted(surface.idle))
    return Prediction(
        kind="measured run",
        title=f"Run {record.name}",
        headline=headline(found, threshold),
        threshold=threshold,
        batches=found,
        schedule=schedule,
        unpredicted=tuple(entry for entry in unknown if batches or drafts or not _beyond(entry)),
        notes=(
            *_simulated(record),
            *_as_given(acceptance),
            *map(jump_text, surface.jumps()),
            "c is measured at its points and read off lines between numbers of drafts; the interval holds what a line may hide",
            *([f"Doubt: {PADDING_HIDDEN}; measure one number between"] if any(map(surface.hides_padding, surface.batches)) else []),
            "Speedup is that of decoding at a steady batch (docs/equation.md); prefill and queueing are left out",
        ),
    )


def _plain_steps(record: RunRecord) -> dict[int, float]:
    """Seconds of a plain step by batch, over all windows that count: while it decodes, a request gets one token a step."""
    run = RunSummary(record)
    steps: dict[int, float] = {}
    for load in record.loads:
        logs = [run.figure(log_decode_time_per_token, trial) for trial in run.trials(record.baseline, load.label)]
        logs = [log for log in logs if math.isfinite(log)]
        if load.concurrency is not None and logs:
            steps.setdefault(load.concurrency, math.exp(statistics.fmean(logs)))
    return steps


def _simulated(record: RunRecord) -> list[str]:
    if all(arm.engine != "fake" for arm in record.arms):
        return []
    return ["The run is simulated: engine fake draws its figures from what the plan declares, nothing was measured"]


def _as_given(acceptance: AcceptanceCurve | None) -> list[str]:
    """Shares or lengths without a sample size: the intervals are those of the cost alone, which nobody can see in them."""
    if acceptance is None or acceptance.num_rounds is not None or acceptance.half_width is not None:
        return []
    return [
        "The acceptance is taken as given: the intervals hold the error of c, not what few rounds or other traffic would change"
    ]


def schedule_from(
    surface: MeasuredSurface, acceptance: AcceptanceCurve, batches: Sequence[int], drafts: Sequence[int], *, threshold: float
) -> Schedule:
    return make_schedule(payoff(surface, acceptance, batches, drafts, threshold=threshold), surface.idle)


def jump_text(jump: Jump) -> str:
    tokens = [jump.batch * (k + 1) for k in (jump.before, jump.after)]
    return (
        f"Cliff at {plural(jump.batch, 'running request')}: c jumps from {jump.cost_before:.2f} to {jump.cost_after:.2f} between "
        f"{jump.before} and {jump.after} drafts, {tokens[0]} and {tokens[1]} tokens a step. Usually the end of the recorded CUDA "
        f"graphs: raise the capture size past {tokens[1]} tokens, or draft at most {jump.before}"
    )


def _between(surface: MeasuredSurface) -> tuple[int, ...]:
    """Every number of drafts from the fewest to the most that were measured."""
    measured = [k for _, k in surface.measured]
    return tuple(range(min(measured), max(measured) + 1))


def _beyond(entry: Unpredicted) -> bool:
    return "lie beyond those measured" in entry.reason


def _range(cost: Cost) -> Range:
    return Range(value=cost.value, low=cost.low, high=cost.high)


def _resting(stretch: Stretch, schedule: Schedule, idle_at: Sequence[int]) -> str:
    """What carrying the drafter costs where the schedule rests; nothing to say where speculation is not loaded at all.

    idle_at: the batches at which it was measured.
    """
    if stretch.num_drafted or schedule.most_drafted == 0:
        return ""
    if stretch.idle is None:
        where = f"only at {', '.join(map(str, idle_at))}" if idle_at else "curve: {idle: true}"
        return f"; what the loaded drafter costs there was not measured ({where})"
    idle = stretch.idle
    high = f"{idle.high:.2f}" if math.isfinite(idle.high) else "no bound"
    return f"; the loaded drafter costs {idle.value:.2f} plain steps a step there [{idle.low:.2f}, {high}]"


def _shown(schedule: Schedule, idle_at: Sequence[int]) -> PredictedSchedule:
    return PredictedSchedule(
        by_batch=tuple(
            DraftsByBatch(
                first=stretch.first,
                last=stretch.last,
                num_draft_tokens=stretch.num_drafted,
                speedup=None
                if stretch.speedup is None
                else Range(value=stretch.speedup.speedup, low=stretch.speedup.low, high=stretch.speedup.high),
                idle=None if stretch.idle is None else _range(stretch.idle),
                why=f"{stretch.why}{_resting(stretch, schedule, idle_at)}",
            )
            for stretch in schedule.stretches
        ),
        fixed=FixedDrafts(
            num_draft_tokens=schedule.fixed.num_drafted,
            worst_loss=schedule.fixed.worst_loss,
            worst_batch=schedule.fixed.worst_batch,
            undecided=schedule.fixed.undecided,
        ),
    )
