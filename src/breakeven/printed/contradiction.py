"""Printed figures that no definition fits: what the engine would have printed, and what would fit instead."""

from __future__ import annotations

import math

from breakeven.printed.definitions import DEFINITIONS, Definition
from breakeven.printed.fitting import Printed
from breakeven.printed.formulas import DraftShape, RateFormula
from breakeven.printed.result import Reading, common
from breakeven.versions import Version

__all__ = ["contradiction"]


def contradiction(
    printed: Printed, engine: str, shape: DraftShape, version: Version | None, rows: tuple[Definition, ...]
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
    if version:
        doubt = f"{said} is not what {engine} {version} prints: {expected}."
    else:
        doubt = f"{said}: no known release of {engine} prints that. {expected}."
    if fits:
        doubt += f" It fits {fits}: check where it was printed and by which release."
    elif others := _other_formulas(printed, shape):
        doubt += f" It fits {others}, which is no rate of this engine: check who worked it out."
    else:
        doubt += " Check the number of draft tokens, and that both figures come from the same lines."
    length = common([candidate.accept_length for candidate in elsewhere]) if printed.length is not None else None
    return Reading(
        status="contradictory", candidates=elsewhere, accept_length=length, doubt=doubt, settle_by=("version", "draft_tokens")
    )


def _other_formulas(printed: Printed, shape: DraftShape) -> str:
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


def _would_print(row: Definition, shape: DraftShape, printed: Printed) -> str:
    if row.rate is None:
        return f"{row.releases} prints no rate" if printed.rate is not None else f"{row.releases} prints {row.length.value}"
    if printed.length is None or not row.rate.is_defined_for(shape):
        floor = f", at least {row.rate.floor(shape):.2f}" if row.rate.is_defined_for(shape) else ""
        return f"{row.releases} prints {row.rate.value}{floor}"
    true_length = row.length.to_true(printed.length.bounds).estimate
    if true_length < 1.0:
        return f"{row.releases} never prints an accept length below {row.length.printed(1.0):.0f}"
    return f"{row.releases} prints {row.rate.value}, here {row.rate.rate(true_length, shape):.2f}"
