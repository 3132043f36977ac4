"""Everything computed from one reported table, in one place, for the parts that put it into words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from breakeven.printed.definitions import METHODS_THAT_SKIP_STEPS
from breakeven.verdict.reported.arms import LoadKey, Point, ReportedArm
from breakeven.verdict.reported.baselines import baseline_for
from breakeven.verdict.reported.comparing import Pair, compare
from breakeven.verdict.reported.gathering import arms_of
from breakeven.verdict.reported.likeness import is_of_lengths
from breakeven.verdict.reported.predicting import CostRatio, Prediction, cost_ratios, predict
from breakeven.verdict.reported.readings import ArmReading, ImpliedRelease, read_arms
from breakeven.verdict.reported.schema import ReportedTable

__all__ = ["Case", "at_loads", "listed", "only_lengths", "speed", "speed_unit", "spoken_speed", "study", "unlike_in"]

NAMES_SHOWN = 5
WORKLOADS_NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    table: ReportedTable
    arms: tuple[ReportedArm, ...]
    readings: tuple[ArmReading, ...]
    implied: tuple[ImpliedRelease, ...]
    clashes: tuple[str, ...]
    pairs: tuple[Pair, ...]
    costs: tuple[CostRatio, ...]
    predictions: tuple[Prediction, ...]

    @property
    def floored(self) -> tuple[ArmReading, ...]:
        return tuple(reading for reading in self.readings if reading.is_at_floor)

    @property
    def plain(self) -> tuple[ReportedArm, ...]:
        return tuple(arm for arm in self.arms if not arm.is_speculative)

    @property
    def barely_accepting(self) -> tuple[ArmReading, ...]:
        """Arms of which so little is accepted that a fault is likelier than a weak drafter; looking up matches may find none."""
        return tuple(r for r in self.readings if r.is_near_floor and r.arm.method not in METHODS_THAT_SKIP_STEPS)

    @property
    def telling_pairs(self) -> tuple[Pair, ...]:
        """Fair comparisons of arms whose drafter works: those that say what speculation is worth."""
        return tuple(pair for pair in self.pairs if pair.is_fair and not self._says_nothing(pair))

    @property
    def failing_pairs(self) -> tuple[Pair, ...]:
        """Fair comparisons at loads where a drafter that works elsewhere accepts nothing."""
        working = {pair.arm.name for pair in self.telling_pairs}
        return tuple(p for p in self.pairs if p.is_fair and p.arm.name in working and self._says_nothing(p))

    def _says_nothing(self, pair: Pair) -> bool:
        reading = self.reading(pair.arm)
        return reading is not None and reading.says_nothing_at(pair.load)

    @property
    def without_baseline(self) -> tuple[ReportedArm, ...]:
        """Speculative arms with figures but no plain arm like them."""
        compared = {pair.arm.name for pair in self.pairs}
        return tuple(
            r.arm for r in self.readings if r.arm.points and r.arm.name not in compared and baseline_for(r.arm, self.arms) is None
        )

    def unproven_lead(self, arm: str, load: LoadKey) -> Pair | None:
        """The comparison of `arm` at `load` where that does not show it to pay."""
        return next((pair for pair in self.pairs if (pair.arm.name, pair.load) == (arm, load) and pair.outcome != "pays"), None)

    def method_label(self, arm: ReportedArm) -> str:
        """Tells this arm's rounds from others': method, shape beyond a number, drafter and engine where several share those."""
        if not arm.is_speculative:
            return arm.method
        alike = [r.arm for r in self.readings if (r.arm.engine, r.arm.method, r.arm.config) == (arm.engine, arm.method, arm.config)]
        shape = arm.config if "-" in arm.config else ""
        drafter = f"({arm.drafter})" if arm.drafter and len({other.drafter for other in alike}) > 1 else ""
        engine = f"on {arm.engine}" if arm.engine and len({r.arm.engine for r in self.readings}) > 1 else ""
        return " ".join(part for part in (arm.method, shape, drafter, engine) if part)

    def reading(self, arm: ReportedArm) -> ArmReading | None:
        return next((reading for reading in self.readings if reading.arm.name == arm.name), None)

    def implied_for(self, engine: str) -> ImpliedRelease | None:
        return next((release for release in self.implied if release.engine == engine), None)

    def ranking(self) -> tuple[LoadKey | None, tuple[tuple[ReportedArm, Point], ...]]:
        """Arms by speed at the load that most of them report; throughput counts before the speed of one request."""
        speeds: dict[tuple[LoadKey, bool], list[tuple[ReportedArm, Point]]] = {}
        for arm in self.arms:
            for point in arm.points:
                if point.throughput is not None:
                    speeds.setdefault((point.load, True), []).append((arm, point))
                elif point.request_speed is not None:
                    speeds.setdefault((point.load, False), []).append((arm, point))
        if not speeds:
            return None, ()
        key = max(speeds, key=lambda key: (len(speeds[key]), key[1], key[0].concurrency or 0))
        ordered = sorted(speeds[key], key=lambda entry: speed(entry[1]), reverse=True)
        return key[0], tuple(ordered)


def speed(point: Point) -> float:
    figure = point.throughput or point.request_speed
    return figure.value if figure is not None else 0.0


def spoken_speed(point: Point) -> str:
    """ "142" or "9.81"; a speed worked out from tpot_ms gets no digits that nobody reported."""
    value = speed(point)
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def speed_unit(point: Point) -> str:
    return "tok/s" if point.throughput is not None or point.load.concurrency == 1 else "tok/s a request"


def unlike_in(ranked: Sequence[tuple[ReportedArm, Point]]) -> str:
    """What explains a higher speed by itself: "hardware", "GPUs" of a replica or "weights", where these differ; or nothing."""
    if len({arm.hardware for arm, _ in ranked} - {None}) > 1:
        return "hardware"
    if len({arm.tensor_parallel for arm, _ in ranked} - {None}) > 1:
        return "GPUs"
    return "weights" if len({arm.quantization.lower() for arm, _ in ranked if arm.quantization}) > 1 else ""


def study(table: ReportedTable) -> Case:
    """Compute everything a verdict on `table` rests on. Raises ReportedError where rows contradict each other."""
    arms = arms_of(table)
    readings, implied, clashes = read_arms(arms)
    pairs = compare(readings, arms, table.threshold)
    costs = cost_ratios(pairs, readings)
    return Case(
        table=table,
        arms=arms,
        readings=readings,
        implied=implied,
        clashes=clashes,
        pairs=pairs,
        costs=costs,
        predictions=predict(readings, costs, pairs, arms, table.threshold),
    )


def listed(names: Iterable[str], shown: int = NAMES_SHOWN) -> str:
    """ "a, b and c"; beyond `shown` names "a, b, … and 7 more"."""
    unique: Sequence[str] = tuple(dict.fromkeys(names))
    if len(unique) > shown:
        return f"{', '.join(unique[:shown])} and {len(unique) - shown} more"
    return " and ".join((", ".join(unique[:-1]), unique[-1])) if len(unique) > 1 else "".join(unique)


def at_loads(pairs: Sequence[Pair]) -> str:
    """Loads in words; many workloads at one concurrency are counted instead of named."""
    loads = sorted({pair.load for pair in pairs}, key=lambda load: load.order)
    at: dict[str, list[LoadKey]] = {}
    for load in loads:
        at.setdefault(replace(load, workload="").label, []).append(load)
    return listed(
        (f"{bare} ({len(same)} workloads)" if len(same) > WORKLOADS_NAMED else label)
        for bare, same in at.items()
        for label in ([bare] if len(same) > WORKLOADS_NAMED else [load.label for load in same])
    )


def only_lengths(pairs: Sequence[Pair]) -> bool:
    """Whether all that is unlike within `pairs` is the length of requests."""
    return all(is_of_lengths(pair.unlike) for pair in pairs)
