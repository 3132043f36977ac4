"""True acceptance of every arm and load, read from what was printed; one arm's release settles the others of its engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from breakeven.printed.definitions import METHODS_THAT_SKIP_STEPS
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.printed.formulas import LengthFormula
from breakeven.printed.reading import read_printed
from breakeven.printed.result import Candidate, Reading
from breakeven.verdict.reported.arms import LoadKey, ReportedArm
from breakeven.versions import Span

__all__ = ["ArmReading", "ImpliedRelease", "length_of_positions", "lies_at_floor", "read_arms"]

# Printed accept lengths up to here, their rounding included, are "no draft was ever accepted".
FLOOR_REACHES = 1.02
# An accept length known no better than this share of itself ("2", without decimals) is not computed with.
WIDEST = 0.2
# Below this so little is accepted that the same faults are the first suspects.
NEAR_FLOOR = 1.10
# Share of all drafts accepted, from which output is likelier degenerate than easy.
CEILING_SHARE = 0.985
_BONUS = {"included": LengthFormula.BONUS_INCLUDED, "excluded": LengthFormula.BONUS_EXCLUDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpliedRelease:
    """Releases of an engine that the figures of `arm` leave possible, newest first."""

    engine: str
    spans: tuple[Span, ...]
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReading:
    """`overall` is the arm's own reading; `by_load` those of loads that printed figures of their own.

    borrowed_from: the arm whose release settled an otherwise ambiguous rate; empty if none had to.
    """

    arm: ReportedArm
    length: PrintedFigure | None
    rate: PrintedFigure | None
    overall: Reading
    by_load: dict[LoadKey, Reading]
    borrowed_from: str = ""

    def at(self, load: LoadKey) -> Reading:
        return self.by_load.get(load, self.overall)

    def accept_length(self, load: LoadKey | None = None) -> Bounds | None:
        """The accept length to compute with; None where the figures do not settle one."""
        reading = self.overall if load is None else self.at(load)
        length = reading.accept_length if reading.is_trusted else None
        return length if length is not None and length.high - length.low <= WIDEST * length.estimate else None

    @property
    def is_at_floor(self) -> bool:
        """No draft was ever accepted: accept length 1.00 as far as its digits go. One digit ("1") says nothing of the kind."""
        lengths = [own.accept_length for own in self.by_load.values() if own.accept_length is not None]
        return all(lies_at_floor(length) for length in (self.overall.accept_length, *lengths))

    @property
    def is_near_floor(self) -> bool:
        length = self.overall.accept_length
        return length is not None and not self.is_at_floor and length.high < NEAR_FLOOR

    def says_nothing_at(self, load: LoadKey) -> bool:
        """So little was accepted at this load that a fault is likelier than a weak drafter; looking up matches may find none."""
        length = self.at(load).accept_length
        is_near = length is not None and length.high < NEAR_FLOOR and self.arm.method not in METHODS_THAT_SKIP_STEPS
        return self.is_at_floor or is_near or self.arm.is_idle

    @property
    def is_at_ceiling(self) -> bool:
        """Every draft was always accepted, as far as digits and averages over a start and an end tell."""
        length, shape = self.overall.accept_length, self.overall.shape
        most = shape.max_length if shape is not None else None
        if length is None or most is None or most <= 1:
            return False
        # of one draft nearly all may well be accepted; of several in a row nobody's text lets so many be
        nearly_all = most > 2 and length.estimate - 1.0 >= CEILING_SHARE * (most - 1)
        return nearly_all or (length.high >= most - 1e-6 and length.estimate >= most - 0.02)


def length_of_positions(positions: tuple[PrintedFigure, ...]) -> PrintedFigure:
    """1 plus the shares of rounds that accepted so far: the accept length, bonus included."""
    total = math.fsum(share.value for share in positions)
    return PrintedFigure(1.0 + total, math.fsum(share.half_width for share in positions), f"{1.0 + total:.2f} (1 + its positions)")


def lies_at_floor(length: Bounds | None) -> bool:
    return length is not None and length.estimate <= 1.0051 and length.high <= FLOOR_REACHES + 1e-6


def read_arms(arms: tuple[ReportedArm, ...]) -> tuple[tuple[ArmReading, ...], tuple[ImpliedRelease, ...], tuple[str, ...]]:
    """Readings of the arms that speculate, the releases implied for each engine, and the clashes between arms of one engine."""
    readings = {arm.name: _read(arm) for arm in arms if arm.is_speculative}
    implied: list[ImpliedRelease] = []
    clashes: list[str] = []
    for engine in dict.fromkeys(arm.engine for arm in arms):
        group = [reading for reading in readings.values() if reading.arm.engine == engine and reading.arm.surface == "log"]
        release, clash = _implied(engine, group)
        if clash:
            clashes.append(clash)
        if release is None:
            continue
        implied.append(release)
        for reading in group:
            readings[reading.arm.name] = _settled_by(release, reading)
    return tuple(readings.values()), tuple(implied), tuple(clashes)


def _read(arm: ReportedArm) -> ArmReading:
    def read(
        length: PrintedFigure | None, rate: PrintedFigure | None, positions: tuple[PrintedFigure, ...] | None = None
    ) -> Reading:
        if length is None and positions is not None and len(positions) == arm.shape.num_drafted:
            length, rate = length_of_positions(positions), None
            return under(length, rate, LengthFormula.BONUS_INCLUDED)
        stated = None if arm.bonus is None else _BONUS[arm.bonus]
        found = under(length, rate, stated)
        if length is None or rate is not None or stated is not None or not arm.surface_is_assumed:
            return found
        if not found.is_trusted or any(c.definition.length is not LengthFormula.BONUS_EXCLUDED for c in found.candidates):
            return found
        # the release leaves the bonus out; whoever works a length out of its counts mostly does not
        with_bonus = under(length, rate, LengthFormula.BONUS_INCLUDED)
        if not with_bonus.is_trusted:
            return found
        return Reading(
            status="ambiguous", candidates=(*found.candidates, *with_bonus.candidates), settle_by=("bonus", "accept_rate")
        )

    def under(length: PrintedFigure | None, rate: PrintedFigure | None, counts: LengthFormula | None) -> Reading:
        return read_printed(
            counts=counts,
            engine=arm.engine,
            shape=arm.shape,
            length=length,
            rate=rate,
            version=arm.version,
            surface=arm.surface,
            method=arm.method,
            drafted_share=arm.drafted_share,
        )

    overall = read(arm.accept_length, arm.accept_rate, arm.by_position)
    own = {
        point.load: read(point.accept_length, point.accept_rate, point.by_position)
        for point in arm.points
        if point.accept_length is not None or point.accept_rate is not None or point.by_position is not None
    }
    return ArmReading(arm=arm, length=arm.accept_length, rate=arm.accept_rate, overall=overall, by_load=own)


def _implied(engine: str, group: list[ArmReading]) -> tuple[ImpliedRelease | None, str]:
    """What the settled arms say of the engine's release; an arm without a release can lean on it."""
    telling = [r for r in group if r.overall.is_trusted and r.rate is not None and len(r.overall.formulas) == 1]
    known_release = all(reading.arm.version is not None for reading in telling)
    spans: tuple[Span, ...] = ()
    first = ""
    for reading in telling:
        if not spans:
            spans, first = reading.overall.spans, reading.arm.name
            continue
        common = tuple(span for span in spans if span in reading.overall.spans)
        if not common:
            if known_release:
                return None, ""
            return None, (
                f"{first} and {reading.arm.name} were printed by different releases of {engine} "
                f"({_either(spans)}; {_either(reading.overall.spans)}): their rates do not mean the same"
            )
        if len(common) < len(spans):
            first = reading.arm.name
        spans = common
    return (ImpliedRelease(engine=engine, spans=spans, arm=first), "") if spans else (None, "")


def _either(spans: tuple[Span, ...]) -> str:
    return " or ".join(str(span) for span in spans)


def _settled_by(release: ImpliedRelease, reading: ArmReading) -> ArmReading:
    if reading.arm.version is not None or reading.arm.name == release.arm:
        return reading
    overall = _narrowed(release, reading.overall)
    by_load = {load: _narrowed(release, own) for load, own in reading.by_load.items()}
    if overall == reading.overall and by_load == reading.by_load:
        return reading
    return replace(reading, overall=overall, by_load=by_load, borrowed_from=release.arm)


def _narrowed(release: ImpliedRelease, reading: Reading) -> Reading:
    """An ambiguous reading with only the candidates that `release` leaves; unchanged where that settles nothing."""
    if reading.status != "ambiguous":
        return reading
    kept: tuple[Candidate, ...] = tuple(c for c in reading.candidates if c.definition.span in release.spans)
    if not kept or len(kept) < len(release.spans):
        return reading
    lengths = [candidate.accept_length for candidate in kept]
    if max(b.low for b in lengths) > min(b.high for b in lengths):
        return reading
    return Reading(status="settled", candidates=kept, accept_length=min(lengths, key=lambda b: b.high - b.low))
