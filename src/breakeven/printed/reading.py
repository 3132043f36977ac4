"""From printed figures to true acceptance: by the engine's release where it is known, else inferred, else refused with reasons."""

from __future__ import annotations

from dataclasses import replace

from breakeven.printed.contradiction import contradiction
from breakeven.printed.definitions import DEFINITIONS_IN_THE_WILD, METHODS_THAT_SKIP_STEPS, Surface, definitions_for
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.printed.fitting import Printed
from breakeven.printed.formulas import DraftShape, LengthFormula
from breakeven.printed.result import Reading, common
from breakeven.versions import Version

__all__ = ["read_printed"]


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
    printed = Printed(length=length, rate=rate, skips_steps=skips)
    is_wild = known.rows == DEFINITIONS_IN_THE_WILD
    if counts is not None:
        known = replace(known, rows=tuple(replace(row, length=counts) for row in known.rows))
    rows = known.rows if version is not None and not is_wild else tuple(row for row in known.rows if row.presumed)
    candidates = printed.candidates(rows, shape) or printed.candidates(known.rows, shape)
    doubt = known.doubt if version is not None or is_wild else ""
    if length is None and any(row.rate is not None and not row.rate.is_defined_for(shape) for row in rows):
        return Reading(status="ambiguous", candidates=candidates, doubt=doubt, settle_by=("draft_tokens", "accept_length"))
    if not candidates:
        return contradiction(printed, engine, shape, version, known.rows)
    settled = common([candidate.accept_length for candidate in candidates])
    if settled is None:
        wanted = (("version",) if version is None else ()) + (("accept_length",) if length is None else ("accept_rate",))
        unknown_shape = () if shape.num_drafted else ("draft_tokens",)
        return Reading(status="ambiguous", candidates=candidates, doubt=doubt, settle_by=wanted + unknown_shape)
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
