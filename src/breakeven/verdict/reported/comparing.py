"""Ratios from reported figures, and the rules for an outcome without an interval.

A reported figure has no interval, so an outcome other than undecided needs all of: both figures at one known concurrency, equal
admission there, a cost ratio that is possible, and a ratio beyond the drift that one configuration shows between launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.verdict.reported.admission import Admission, admission_of
from breakeven.verdict.reported.arms import LoadKey, Point, ReportedArm
from breakeven.verdict.reported.baselines import baselines_for, plain_behind
from breakeven.verdict.reported.likeness import is_of_lengths, unlike
from breakeven.verdict.reported.readings import ArmReading
from breakeven.verdict.reported.without_interval import outcome_if_admitted_alike, why_runs_decide_nothing
from breakeven.verdict.result import Outcome

__all__ = ["IMPOSSIBLE_BELOW", "Pair", "compare"]

# A round cannot take less time than a plain step; below this share of it the baseline, or the accept length, is wrong.
IMPOSSIBLE_BELOW = 0.97

AS_REPORTED = "speedup as reported"
# a reported ratio and that of the speeds beside it may differ by this much beyond their digits: averages over prompts do
RATIO_SLACK = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One speculative arm against its baseline at one load. `cost` is AL over ratio, None without a trusted accept length.

    is_impossible: the cost ratio lies below what any round can cost. is_tainted: another arm shows this baseline to be so.
    unlike: how the requests of the two arms differed, empty where nothing reported does.
    contradiction: how the speedup that was reported differs from that of the speeds, empty where it does not.
    other_ratio: by the speed of one request, where the ratio is one of throughput and both were reported.
    """

    arm: ReportedArm
    baseline: ReportedArm
    load: LoadKey
    ratio: float
    measure: str
    admission: Admission
    accept_length: Bounds | None
    cost: float | None
    is_impossible: bool
    is_tainted: bool = False
    outcome: Outcome
    why: str
    unlike: str = ""
    other_ratio: float | None = None
    contradiction: str = ""
    runs_apart: str = ""

    @property
    def is_fair(self) -> bool:
        """Equal known admission at a known concurrency, requests alike, and figures that can be true together."""
        doubtful = self.is_impossible or self.is_tainted or self.unlike or self.contradiction
        return self.admission.is_equal is True and not doubtful


def compare(readings: tuple[ArmReading, ...], arms: tuple[ReportedArm, ...], threshold: float) -> tuple[Pair, ...]:
    """Every speculative arm against plain decoding at every load both report: the fastest plain arm there, where several are."""
    pairs = []
    for reading in readings:
        baselines = baselines_for(reading.arm, arms)
        for point in reading.arm.points:
            found = [
                (figures, plain)
                for plain in baselines
                if (there := plain.point(point.load)) is not None and (figures := _figures(point, there)) is not None
            ]
            # a plain arm that was measured in another way is compared only where there is no other
            found = [entry for entry in found if not _unlike(point, entry[1])] or found
            if found:
                # throughput before the speed of one request, then the harder to beat
                same_kind = [entry for entry in found if entry[0][2] == found[0][0][2]]
                figures, plain = max(same_kind, key=lambda entry: entry[0][1].value)
                pairs.append(_pair(reading, plain, point.load, figures, threshold))
            elif point.speedup is not None:
                figures = point.speedup, PrintedFigure(1.0), AS_REPORTED
                pairs.append(_pair(reading, plain_behind(reading.arm), point.load, figures, threshold))
    return _tainted(pairs)


def _unlike(point: Point, plain: ReportedArm) -> str:
    there = plain.point(point.load)
    return unlike(point, there) if there is not None else ""


def _tainted(pairs: list[Pair]) -> tuple[Pair, ...]:
    """A baseline that is impossible beside one arm is no measure for the others at that load either."""
    void = {(pair.baseline.name, pair.load): pair.arm.name for pair in pairs if pair.is_impossible}
    return tuple(
        pair
        if pair.is_impossible or (pair.baseline.name, pair.load) not in void
        else replace(
            pair,
            is_tainted=True,
            outcome="undecided",
            why=f"{void[pair.baseline.name, pair.load]} shows that {pair.baseline.name} cannot be right at {pair.load.label}",
        )
        for pair in pairs
    )


def _figures(point: Point, plain: Point) -> tuple[PrintedFigure, PrintedFigure, str] | None:
    """The two figures to divide, of one kind; with one request running, a single stream and a throughput are nearly one kind."""
    if point.throughput is not None and plain.throughput is not None:
        return point.throughput, plain.throughput, "throughput"
    if point.request_speed is not None and plain.request_speed is not None:
        return point.request_speed, plain.request_speed, "speed of one request"
    mine, theirs = point.throughput or point.request_speed, plain.throughput or plain.request_speed
    if point.load.concurrency == 1 and mine is not None and theirs is not None:
        return mine, theirs, "single stream against throughput at one request"
    return None


def _pair(
    reading: ArmReading, baseline: ReportedArm, load: LoadKey, figures: tuple[PrintedFigure, PrintedFigure, str], threshold: float
) -> Pair:
    mine, theirs, measure = figures
    ratio = mine.value / theirs.value
    length = reading.accept_length(load)
    admission = admission_of(reading.arm, baseline, load)
    if measure == AS_REPORTED and load.concurrency == 1:
        # who reports a ratio compared on one engine, and one request is one request
        admission = Admission(is_equal=True, text="one request, a ratio as reported")
    longest = length.high if length is not None else reading.arm.shape.max_length
    # where admission is known to differ, that explains any ratio
    is_impossible = (
        load.concurrency is not None
        and admission.is_equal is not False
        and longest is not None
        and longest / ratio < IMPOSSIBLE_BELOW
    )
    bounded = reading.at(load).is_upper_bound
    outcome, why = outcome_if_admitted_alike(ratio, admission, threshold)
    runs_apart = why_runs_decide_nothing(outcome, ratio, mine, theirs, threshold)
    if runs_apart:
        outcome, why = "undecided", runs_apart
    points = reading.arm.point(load), baseline.point(load)
    differing = unlike(points[0], points[1]) if points[0] is not None and points[1] is not None else ""
    contradiction = _contradiction(points[0], ratio, figures) if measure != AS_REPORTED else ""
    if contradiction:
        outcome, why = "undecided", contradiction
    elif differing:
        outcome = "undecided"
        what = "two workloads, of which prefill is another share" if is_of_lengths(differing) else "not measured alike"
        why = f"{differing}: {what}, so {ratio:.2f}x does not show what speculation does"
    elif is_impossible and longest is not None:
        outcome = "undecided"
        why = (
            f"{ratio:.2f}x with an accept length of at most {longest:.2f} would mean that a round costs {longest / ratio:.2f} "
            "plain steps; below 1 is impossible, so the baseline or the accept length is wrong"
        )
    elif (reading.is_at_floor or reading.is_near_floor) and outcome == "slower":
        accepted = "no" if reading.is_at_floor else "hardly a"
        why += f"; with {accepted} draft accepted this is what the rounds cost, not what a working drafter would bring"
    return Pair(
        arm=reading.arm,
        baseline=baseline,
        load=load,
        ratio=ratio,
        measure=measure,
        admission=admission,
        accept_length=length,
        cost=length.estimate / ratio if length is not None and not bounded else None,
        is_impossible=is_impossible,
        outcome=outcome,
        why=why,
        unlike=differing,
        contradiction=contradiction,
        runs_apart=runs_apart,
        other_ratio=_request_ratio(*points) if measure == "throughput" else None,
    )


def _contradiction(point: Point | None, ratio: float, figures: tuple[PrintedFigure, PrintedFigure, str]) -> str:
    """The speedup that stands beside two speeds, where it is not theirs as far as digits go and averages over prompts differ."""
    said = point.speedup if point is not None else None
    if said is None:
        return ""
    relative = sum(figure.half_width / figure.value for figure in figures[:2])
    if abs(said.value - ratio) <= said.half_width + ratio * (relative + RATIO_SLACK):
        return ""
    return f"reported as {said}, but the speeds give {ratio:.2f}x"


def _request_ratio(mine: Point | None, plain: Point | None) -> float | None:
    if mine is None or plain is None or mine.request_speed is None or plain.request_speed is None:
        return None
    return mine.request_speed.value / plain.request_speed.value
