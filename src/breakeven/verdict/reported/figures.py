"""What was measured, as a cell of a reported table may give it: speeds, ratios, accept lengths, rates and shares.

What stands for something else is refused with what to give: a percentage for a length, seconds for milliseconds.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import PlainValidator

from breakeven.printed.figures import PrintedFigure
from breakeven.verdict.reported.cells import figure_of, known, scalar, shown

__all__ = ["Figure", "Length", "Milliseconds", "Positions", "Rate", "Share", "Speed", "Speedup", "Threshold"]

_SECONDS = re.compile(r"(?<![a-zµ])(s|sec|secs|seconds?)(\s*/\s*tok(en)?)?$", re.IGNORECASE)
_MAX_RUNS, _MAX_POSITIONS = 100, 64
# no server answers one request faster than this, so a smaller "tpot_ms" was meant in seconds
_SHORTEST_TPOT_MS = 0.1


def _positive(value: Any) -> PrintedFigure | None:
    figure = figure_of(value)
    if figure is not None and (figure.value <= 0.0 or figure.is_percent):
        raise ValueError(f"{shown(str(value))} must be a plain number above 0; leave the field out where nothing was measured")
    return figure


def _runs(read: Callable[[Any], PrintedFigure | None]) -> Callable[[Any], PrintedFigure | None]:
    """A figure, or the figures of several runs of the same thing: a list, or text with " / " between them."""

    def several(value: Any) -> PrintedFigure | None:
        parts = value.split(" / ") if isinstance(value, str) and " / " in value else value
        if not isinstance(parts, list):
            return read(parts)
        if not 0 < len(parts) <= _MAX_RUNS:
            raise ValueError(f"has {len(parts)} runs; expected 1 to {_MAX_RUNS}")
        figures = [read(part) for part in parts]
        known = [figure for figure in figures if figure is not None]
        if len(known) < len(figures):
            raise ValueError("lists runs without a figure; leave those out")
        return PrintedFigure.of_runs(known)

    return several


def _speedup(value: Any) -> PrintedFigure | None:
    if not (text := known(value)):
        return None
    try:
        figure = PrintedFigure.parse_ratio(text)
    except ValueError as error:
        raise ValueError(f"{shown(text)} {error}") from None
    if figure.value <= 0.0:
        raise ValueError(f"{shown(text)} must be above 0; leave the field out where nothing was measured")
    return figure


def _milliseconds(value: Any) -> PrintedFigure | None:
    text = scalar(value)
    if _SECONDS.search(text):
        raise ValueError(f"{shown(text)} is in seconds; give milliseconds, 1000 times as many")
    figure = _positive(text)
    if figure is not None and figure.value < _SHORTEST_TPOT_MS:
        raise ValueError(
            f"{shown(text)} would be {1000.0 / figure.value:.0f} tokens/s of one request; is it in seconds? Give milliseconds"
        )
    return figure


def _length(value: Any) -> PrintedFigure | None:
    figure = figure_of(value)
    if figure is not None and figure.is_percent:
        raise ValueError(f"{shown(str(value))} is a percentage; an accept length counts tokens. Is it the accept_rate?")
    return figure


def _share(value: Any) -> PrintedFigure | None:
    figure = figure_of(value)
    if figure is not None and figure.value > 1.0:
        raise ValueError(f"{shown(str(value))} must lie between 0 and 1, or carry a percent sign")
    return figure


def _threshold(value: Any) -> float:
    share = _share(value)
    if share is None or share.value >= 1.0:
        raise ValueError(f"{shown(str(value))} must lie between 0 and 1, such as 0.03")
    return share.value


def _rate(value: Any) -> PrintedFigure | None:
    if isinstance(value, list):
        raise ValueError(
            "shares by position are not one rate; give accept_length instead, which is 1 plus their sum where each is the share of "
            "rounds that accepted so far (vLLM's per-position rates are)"
        )
    figure = figure_of(value)
    if figure is None or figure.is_percent or figure.value <= 1.0:
        if figure is not None and figure.value > 1.5:
            raise ValueError(f"{shown(str(value))} is more than all of the drafts")
        return figure
    if 2.0 <= figure.value <= 100.0:
        return PrintedFigure(figure.value / 100.0, figure.half_width / 100.0, f"{figure.text} %", is_percent=True)
    raise ValueError(f"{shown(str(value))} is neither a share (0 to 1) nor plainly a percentage: write 0.42 or 42 %")


def _positions(value: Any) -> tuple[PrintedFigure, ...] | None:
    if not isinstance(value, list):
        if not (text := known(value)):
            return None
        value = re.split(r"\s*[/;|]\s*|,\s+", text.strip("[]() "))
    if len(value) > _MAX_POSITIONS:
        raise ValueError(f"has {len(value)} positions; at most {_MAX_POSITIONS}")
    shares = tuple(figure for one in value if (figure := _rate(one)) is not None)
    if len(shares) < len(value) or not shares:
        raise ValueError("lists positions without a share; give one for each draft, such as 0.76, 0.60, 0.50")
    for before, after in itertools.pairwise(shares):
        if after.value - after.half_width > before.value + before.half_width:
            raise ValueError(
                f"rises from {before} to {after}: the share of rounds that accepted so far can only fall. Shares that are each "
                "given those before are to be multiplied first"
            )
    return shares


Figure = Annotated[PrintedFigure | None, PlainValidator(_positive)]
Speed = Annotated[PrintedFigure | None, PlainValidator(_runs(_positive))]
Milliseconds = Annotated[PrintedFigure | None, PlainValidator(_runs(_milliseconds))]
Speedup = Annotated[PrintedFigure | None, PlainValidator(_speedup)]
Length = Annotated[PrintedFigure | None, PlainValidator(_length)]
Rate = Annotated[PrintedFigure | None, PlainValidator(_rate)]
Positions = Annotated[tuple[PrintedFigure, ...] | None, PlainValidator(_positions)]
Share = Annotated[PrintedFigure | None, PlainValidator(_share)]
Threshold = Annotated[float, PlainValidator(_threshold)]
