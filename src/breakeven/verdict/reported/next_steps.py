"""What would change a decision from reported figures, and what to measure next."""

from __future__ import annotations

from breakeven.engines.version_facts import admission_flag, forced_acceptance
from breakeven.verdict.reported.case import Case, at_loads, listed, only_lengths
from breakeven.verdict.reported.comparing import Pair
from breakeven.verdict.reported.wording import percent_change

__all__ = ["next_measurements", "what_would_change_it"]

MARGINS_TOLD = 3


def what_would_change_it(case: Case, pairs: tuple[Pair, ...], none_pays: bool) -> tuple[str, ...]:
    """The margins of accept length, nearest first, then what was not shown."""
    lines = []
    margins = []
    for cost in case.costs:
        reading = case.reading(cost.arm)
        length = reading.accept_length(cost.load) if reading is not None else None
        # no accept length lies below one, so a round as cheap as a step cannot fail to pay
        if length is not None and cost.value > 1.0:
            margins.append((abs(length.estimate / cost.value - 1.0), cost, length))
    for _, cost, length in sorted(margins, key=lambda entry: entry[0])[:MARGINS_TOLD]:
        side = "below" if length.estimate > cost.value else "above"
        config = f" {cost.arm.config}" if cost.arm.config else ""
        lines.append(
            f"An accept length {side} {cost.value:.2f} at {cost.load.label} for {cost.arm.method}{config} ({cost.arm.name} has "
            f"{length.estimate:.2f})."
        )
    if case.floored:
        lines.append("A drafter whose drafts are accepted at all: mend the wiring, then measure again.")
    if any(pair.admission.is_equal is not True for pair in case.pairs):
        lines.append("The same arms at equal, stated concurrency and equal limits on running requests.")
    if any(r.overall.status in {"ambiguous", "contradictory"} and r.arm.points for r in case.readings):
        lines.append("The engine's release and the flags of each arm, which fix what the printed rates mean.")
    if pairs or none_pays:
        lines.append("Raw samples of at least three launches an arm, which would give the ratios an interval.")
    return tuple(lines)


def next_measurements(case: Case, pays: bool) -> tuple[str, ...]:
    """Cheapest first: reading, then one server, then pairs of servers, then sweeps."""
    steps = []
    unclear = [r for r in case.readings if r.overall.status in {"ambiguous", "contradictory"} and r.arm.points]
    if unclear:
        settle = listed(field for reading in unclear for field in reading.overall.settle_by)
        steps.append(f"Nothing to run: read {settle} of {listed(r.arm.name for r in unclear)} from the server's log.")
    suspects = [reading for reading in case.readings if reading.is_at_floor or reading.is_near_floor]
    if suspects:
        code = "accept-length-at-floor" if case.floored else "accept-length-near-floor"
        drafters = listed(reading.arm.drafter or reading.arm.name for reading in suspects)
        steps.append(f"The static check of {drafters}, no GPU needed: the list of finding {code}, in its order.")
    full = [reading.arm.name for reading in case.readings if reading.is_at_ceiling]
    if full:
        steps.append(f"Nothing to run: read the output of {listed(full)}, which accepted every draft.")
    failing = list(case.failing_pairs)
    if failing:
        steps.append(
            f"{listed(p.arm.name for p in failing)} at {at_loads(failing)} on the prompts of the other loads, with another "
            "attention backend: the accept length must not depend on load."
        )
    if any(pair.is_impossible for pair in case.pairs):
        steps.append(
            f"The baseline again ({listed(p.baseline.name for p in case.pairs if p.is_impossible)}), with its flags recorded."
        )
    unfair = [pair for pair in case.pairs if pair.admission.is_equal is not True]
    if unfair:
        flags = listed(admission_flag(pair.arm.engine) for pair in unfair)
        arms = listed([*(pair.baseline.name for pair in unfair), *(pair.arm.name for pair in unfair)])
        step = f"{arms} again with equal {flags}, at stated concurrencies from 1 up"
        told = [p for p in case.predictions if p.arm.name in {pair.arm.name for pair in unfair}]
        if told:
            step += f" (predicted: {told[0].arm.name} {percent_change(told[0].ratio)} at {told[0].load.label})"
        steps.append(f"{step}.")
    elif case.predictions:
        steps.append(f"{listed(f'{p.arm.name} at {p.load.label}' for p in case.predictions)}: measure what is predicted here.")
    if case.readings and not case.plain:
        steps.append("Plain decoding on the same engine and weights, at the same concurrencies.")
    elif case.without_baseline:
        lonely = listed(arm.name for arm in case.without_baseline)
        steps.append(f"Plain decoding beside {lonely}: same engine, release, hardware, split, weights and concurrencies.")
    elif case.readings and not case.pairs and case.plain:
        arms = listed([*(arm.name for arm in case.plain), *(reading.arm.name for reading in case.readings)])
        steps.append(f"{arms} at one and the same concurrency, on the same prompts: nothing else can be compared.")
    unlike = [pair for pair in case.pairs if pair.unlike]
    if unlike:
        arms = listed([*(pair.baseline.name for pair in unlike), *(pair.arm.name for pair in unlike)])
        how = "on the same prompts with equally many output tokens" if only_lengths(unlike) else "again, measured alike"
        steps.append(f"{arms} {how}.")
    known = {cost.load.concurrency for cost in case.costs}
    loads = {point.load.concurrency for reading in case.readings for point in reading.arm.points} or {None}
    if case.pairs and loads == {1}:
        steps.append("The same arms at the concurrencies that are served: the cost of a round changes with load.")
    if case.readings and (None in loads or loads == {1} or not loads <= known):
        steps.append(f"The break-even curve by concurrency on the same hardware, with forced acceptance{_how_to_force(case)}.")
    if case.pairs and (pays or not unfair):
        steps.append("Each arm that matters on at least three fresh launches, alternating with plain decoding, for an interval.")
    return tuple(steps)


def _how_to_force(case: Case) -> str:
    ways = []
    for reading in case.readings:
        way = forced_acceptance(reading.arm.engine, reading.arm.version)
        if way is not None and reading.arm.points:
            ways.append(f"{way.engine}: {way.how}")
    return f" ({listed(ways)})" if ways else ""
