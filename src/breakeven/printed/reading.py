"""From printed figures to true acceptance: by the engine's release where it is known, else inferred, else refused with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from breakeven.printed.definitions import (
    DEFINITIONS,
    DEFINITIONS_IN_THE_WILD,
    METHODS_THAT_SKIP_STEPS,
    Definition,
    Surface,
    definitions_for,
)
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.printed.formulas import DraftShape, LengthFormula, RateFormula, chain_alpha
from breakeven.versions import Span, Version

__all__ = ["Candidate", "Reading", "read_printed"]

# Drafts a round tried where their number is not reported; the inverse problem has too many answers beyond.
DRAFTS_TRIED = range(1, 16)
_ROUNDING_SLACK = 1e-9
# A length and a rate averaged over slightly different lines disagree by a few tenths of a percent; the formulas differ by far more.
AVERAGING_SLACK = 0.005
# What is granted to printed digits, strictest first: how much wider than rounding, relatively, and in words.
_ALLOWANCES = (
    (1.0, 0.0, ""),
    (2.0, 0.0, "if a last digit was cut off instead of rounded"),
    (2.0, AVERAGING_SLACK, "if these are averages over different lines"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One meaning that fits the printed figures: a row of the table, the shape it supposes, the accept length it gives.

    allowance: what must be granted to the printed digits before it fits, such as "if a last digit was cut off"; mostly nothing.
    """

    definition: Definition
    shape: DraftShape
    accept_length: Bounds
    allowance: str = ""

    @property
    def draft_acceptance(self) -> float | None:
        """accepted / drafted at the best guess; None where the number of drafts is not known."""
        return (self.accept_length.estimate - 1.0) / self.shape.num_drafted if self.shape.num_drafted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the figures mean.

    status: "settled" (one accept length), "ambiguous" (several; `settle_by` names the fields that would decide),
        "contradictory" (`doubt` says what clashes) or "nothing printed".
    candidates: every meaning that fits, newest release first.
    accept_length: per decode step; None unless settled, or printed beside a rate that contradicts it (then not `is_trusted`).
    skips_steps: the method drafts only where it finds a match, so the number of drafts a round is only a limit.
    is_upper_bound: the true accept length is at most this: the engine left out steps without drafts (where `skips_steps`), or its
        rate counts drafts that no step kept.
    from_pair: the meaning of the rate was inferred from length and rate together.
    doubt: what makes the reading uncertain, empty if nothing does.
    """

    status: Literal["settled", "ambiguous", "contradictory", "nothing printed"]
    candidates: tuple[Candidate, ...] = ()
    accept_length: Bounds | None = None
    is_upper_bound: bool = False
    skips_steps: bool = False
    from_pair: bool = False
    doubt: str = ""
    settle_by: tuple[str, ...] = ()

    @property
    def is_trusted(self) -> bool:
        return self.status == "settled"

    @property
    def formulas(self) -> tuple[RateFormula, ...]:
        """The rate formulas that fit, without those that only differ in name at this shape."""
        kept: dict[tuple[bool, int | None, RateFormula | None], RateFormula] = {}
        for candidate in self.candidates:
            formula = candidate.definition.rate
            if formula is not None:
                kept.setdefault(_sense(formula, candidate.shape), formula)
        return tuple(kept.values())

    @property
    def spans(self) -> tuple[Span, ...]:
        """Releases that print what was printed, newest first."""
        return tuple(dict.fromkeys(candidate.definition.span for candidate in self.candidates))

    @property
    def shape(self) -> DraftShape | None:
        """The one shape that fits; None where several do."""
        shapes = {candidate.shape for candidate in self.candidates}
        return shapes.pop() if len(shapes) == 1 else None

    @property
    def draft_acceptance(self) -> float | None:
        shape = self.shape
        if self.accept_length is None or shape is None or not shape.num_drafted or self.skips_steps:
            return None
        return (self.accept_length.estimate - 1.0) / shape.num_drafted

    @property
    def chain_alpha(self) -> float | None:
        """Acceptance of each draft given those before, taken alike at every position; None for trees and unknown shapes."""
        shape = self.shape
        if self.accept_length is None or shape is None or not shape.num_drafted or not shape.is_chain or self.skips_steps:
            return None
        return chain_alpha(min(max(self.accept_length.estimate, 1.0), shape.num_drafted + 1.0), shape.num_drafted)


def read_printed(
    *,
    engine: str,
    shape: DraftShape,
    length: PrintedFigure | None,
    rate: PrintedFigure | None,
    version: Version | None = None,
    surface: Surface = "log",
    method: str = "",
    drafted_share: float | None = None,
    counts: LengthFormula | None = None,
) -> Reading:
    """Read a printed accept length, accept rate or both; `shape` comes from `draft_shape`.

    drafted_share: share of decode steps that carried drafts, for engines that count only those.
    counts: what the length counts, where that is known whatever the release prints.
    """
    if length is None and rate is None:
        return Reading(status="nothing printed")
    known = definitions_for(engine, surface, version)
    skips = method in METHODS_THAT_SKIP_STEPS
    printed = _Printed(length=length, rate=rate, skips_steps=skips)
    is_wild = known.rows == DEFINITIONS_IN_THE_WILD
    if counts is not None:
        known = replace(known, rows=tuple(replace(row, length=counts) for row in known.rows))
    rows = known.rows if version is not None and not is_wild else tuple(row for row in known.rows if row.presumed)
    candidates = printed.candidates(rows, shape) or printed.candidates(known.rows, shape)
    doubt = known.doubt if version is not None or is_wild else ""
    if length is None and any(row.rate is not None and not row.rate.is_defined_for(shape) for row in rows):
        return Reading(status="ambiguous", candidates=candidates, doubt=doubt, settle_by=("draft_tokens", "accept_length"))
    if not candidates:
        return _contradiction(printed, engine, shape, version, known.rows)
    lengths = [candidate.accept_length for candidate in candidates]
    if not _agree(lengths):
        wanted = (("version",) if version is None else ()) + (("accept_length",) if length is None else ("accept_rate",))
        unknown_shape = () if shape.num_drafted else ("draft_tokens",)
        return Reading(status="ambiguous", candidates=candidates, doubt=doubt, settle_by=wanted + unknown_shape)
    settled = min(lengths, key=lambda bounds: bounds.high - bounds.low)
    per_round = skips and all(candidate.definition.per == "round" for candidate in candidates)
    if per_round and drafted_share is not None:
        settled = Bounds(*(1.0 + drafted_share * (value - 1.0) for value in (settled.estimate, settled.low, settled.high)))
    rate_is_bound = length is None and any(candidate.definition.rate_is_bound for candidate in candidates)
    if rate_is_bound:
        settled = Bounds(settled.estimate, 1.0, settled.high)
    reading = Reading(
        status="settled",
        candidates=candidates,
        accept_length=settled,
        is_upper_bound=rate_is_bound or (per_round and drafted_share is None),
        skips_steps=skips,
        from_pair=length is not None and rate is not None and version is None,
        doubt=doubt,
    )
    if rate is not None and len(reading.formulas) > 1:
        return replace(
            reading, settle_by=(("version",) if version is None else ()) + (() if shape.num_drafted else ("draft_tokens",))
        )
    return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Printed:
    length: PrintedFigure | None
    rate: PrintedFigure | None
    skips_steps: bool

    def candidates(self, rows: Iterable[Definition], shape: DraftShape) -> tuple[Candidate, ...]:
        """Rows that fit as rounded; failing that, as cut off after the last digit by hand; failing that, as averages."""
        rows = tuple(rows)
        return next((found for given in _ALLOWANCES if (found := self._fitting(rows, shape, *given))), ())

    def _fitting(
        self, rows: tuple[Definition, ...], shape: DraftShape, widening: float, relative: float, allowance: str
    ) -> tuple[Candidate, ...]:
        found = []
        for row in reversed(rows):
            for tried in self._shapes(row, shape):
                bounds = self._meet(row, tried, widening, relative)
                if bounds is not None:
                    found.append(Candidate(definition=row, shape=tried, accept_length=bounds, allowance=allowance))
        return tuple(found)

    def _shapes(self, row: Definition, shape: DraftShape) -> Iterable[DraftShape]:
        if self.rate is None or row.rate is None or row.rate.is_defined_for(shape):
            return (shape,)
        if self.length is None:
            return ()
        # the depth bounds nothing new here: a chain of as many steps as drafts is the plainest shape with this denominator
        return tuple(
            DraftShape(num_drafted=shape.num_drafted or drafts, num_steps=shape.num_steps or drafts, is_chain=shape.is_chain)
            for drafts in DRAFTS_TRIED
            if drafts <= (shape.num_drafted or drafts)
        )

    def _meet(self, row: Definition, shape: DraftShape, widening: float, relative: float) -> Bounds | None:
        allowed = Bounds(1.0, 1.0 - _ROUNDING_SLACK, float(shape.max_length or 1e9) + _ROUNDING_SLACK)
        if self.length is not None:
            printed = row.length.to_true(_widened(self.length, widening, relative))
            met = printed.meet(allowed)
            if met is None:
                return None
            allowed = met
        if self.rate is None:
            return allowed
        if row.rate is None:
            return None
        rated = _widened(self.rate, widening, relative)
        try:
            ends = [row.rate.accept_length(value, shape) for value in (rated.estimate, max(rated.low, 0.0), rated.high)]
        except ValueError:
            return None
        from_rate = Bounds(*ends)
        if self.skips_steps and self.length is not None:
            # fewer drafts than allowed were proposed on average, so the rate only bounds the length from above
            from_rate = Bounds(min(from_rate.estimate, allowed.estimate), 1.0, from_rate.high)
        return allowed.meet(from_rate) if self.length is not None else from_rate.meet(allowed)


def _widened(figure: PrintedFigure, widening: float, relative: float) -> Bounds:
    slack = max(figure.half_width * widening, figure.value * relative) + _ROUNDING_SLACK
    return Bounds(figure.value, figure.value - slack, figure.value + slack)


def _agree(bounds: list[Bounds]) -> bool:
    return max(b.low for b in bounds) <= min(b.high for b in bounds)


def _sense(formula: RateFormula, shape: DraftShape) -> tuple[bool, int | None, RateFormula | None]:
    """Equal for formulas that give the same number at this shape."""
    odd_one_out = formula if formula in {RateFormula.SHARE_OF_OUTPUT, RateFormula.CHAIN_ALPHA} else None
    return formula.counts_bonus, formula.denominator(shape), odd_one_out


def _contradiction(
    printed: _Printed, engine: str, shape: DraftShape, version: Version | None, rows: tuple[Definition, ...]
) -> Reading:
    """No row fits: say what the rows would have printed, and what would fit instead, in other releases or places."""
    elsewhere = printed.candidates((row for row in DEFINITIONS if row.engine == engine and row not in rows), shape)
    said = " and ".join(
        f"{name} {figure}"
        for name, figure in (("accept length", printed.length), ("accept rate", printed.rate))
        if figure is not None
    )
    most, given = shape.max_length, printed.length
    if given is not None and most is not None and given.value - given.half_width > most:
        drafts = shape.num_drafted or shape.num_steps
        doubt = (
            f"accept length {given} is above {most}, the most that {drafts} drafts a round can give: check draft_tokens and steps."
        )
        return Reading(status="contradictory", doubt=doubt, settle_by=("draft_tokens", "steps"))
    told = [row for row in rows if version is not None or printed.rate is None or row.rate is not None]
    expected = "; ".join(dict.fromkeys(_would_print(row, shape, printed) for row in told))
    fits = ", ".join(dict.fromkeys(_names(candidate.definition) for candidate in elsewhere))
    doubt = f"{said}: {f'{engine} {version}' if version else 'no known release of ' + engine} prints that. {expected}."
    if version:
        doubt = f"{said} is not what {engine} {version} prints: {expected}."
    if fits:
        doubt += f" It fits {fits}: check where it was printed and by which release."
    elif others := _other_formulas(printed, shape):
        doubt += f" It fits {others}, which is no rate of this engine: check who worked it out."
    else:
        doubt += " Check the number of draft tokens, and that both figures come from the same lines."
    agreed = [candidate.accept_length for candidate in elsewhere]
    length = min(agreed, key=lambda b: b.high - b.low) if printed.length is not None and agreed and _agree(agreed) else None
    return Reading(
        status="contradictory", candidates=elsewhere, accept_length=length, doubt=doubt, settle_by=("version", "draft_tokens")
    )


def _other_formulas(printed: _Printed, shape: DraftShape) -> str:
    """Meanings that no engine prints and people work out, such as the acceptance of each draft given those before."""
    length, rate = printed.length, printed.rate
    if length is None or rate is None or length.value < 1.0:
        return ""
    # what rounding could have hidden lies within what the drafts allow: 2.00 of one draft is no 2.005
    most = shape.max_length if shape.max_length is not None else math.inf
    lengths = [min(max(1.0, length.value + side * length.half_width), most) for side in (-1, 1)]
    fitting = []
    for formula in (RateFormula.CHAIN_ALPHA, RateFormula.SHARE_OF_OUTPUT):
        if formula.is_defined_for(shape):
            try:
                low, high = (formula.rate(each, shape) for each in lengths)
            except ValueError:  # no chain of so many drafts has this length: steps and drafts that contradict each other
                continue
            if low - rate.half_width <= rate.value <= high + rate.half_width:
                fitting.append(formula.value)
    return " or ".join(fitting)


def _names(row: Definition) -> str:
    place = "" if row.surface == "log" else f", {row.surface}"
    return f"{row.rate.value if row.rate else 'no rate'} ({row.releases}{place})"


def _would_print(row: Definition, shape: DraftShape, printed: _Printed) -> str:
    if row.rate is None:
        return f"{row.releases} prints no rate" if printed.rate is not None else f"{row.releases} prints {row.length.value}"
    if printed.length is None or not row.rate.is_defined_for(shape):
        floor = f", at least {row.rate.floor(shape):.2f}" if row.rate.is_defined_for(shape) else ""
        return f"{row.releases} prints {row.rate.value}{floor}"
    true_length = row.length.to_true(printed.length.bounds).estimate
    if true_length < 1.0:
        return f"{row.releases} never prints an accept length below {row.length.printed(1.0):.0f}"
    return f"{row.releases} prints {row.rate.value}, here {row.rate.rate(true_length, shape):.2f}"
