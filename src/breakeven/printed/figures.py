"""A number as somebody printed it: its value and the half-width that rounding hides."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Bounds", "PrintedFigure"]

# Separators that can mean one thing only: thousands, several times or before other decimals; and one comma that no three digits
# follow, or that a zero goes before. "2,950" is 2950 or 2.95, so it is refused.
_POINT_DECIMALS = re.compile(r"\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?:\.\d+)?|\d{1,3}(?:,\d{3})+\.\d+|\d{1,3}(?:,\d{3}){2,}")
_COMMA_DECIMALS = re.compile(
    r"\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+,\d+|\d{1,3}(?:\.\d{3})+,\d+|0,\d+|\d+,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3}){2,}"
)
_NUMBER = re.compile(r"\+?(?P<digits>\d+(?:\.(?P<decimals>\d*))?|\.(?P<only_decimals>\d+))(?:[eE](?P<exponent>[+-]?\d{1,2}))?")


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value known to lie in [low, high], with the best guess inside."""

    estimate: float
    low: float
    high: float

    def meet(self, other: Bounds) -> Bounds | None:
        """What both allow; None where they contradict each other. The guess is this one's own where the other allows it, else
        the narrower one's."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:
            return None
        if low <= self.estimate <= high:
            return Bounds(self.estimate, low, high)
        narrower = self if self.high - self.low <= other.high - other.low else other
        return Bounds(min(max(narrower.estimate, low), high), low, high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class PrintedFigure:
    """`PrintedFigure.parse("0.42")` is 0.42 with a half-width of 0.005; "42 %" is the same; a float stands for its own digits.

    runs: the figures that this is the mean of, where several were given."""

    value: float
    half_width: float = 0.0
    text: str = ""
    is_percent: bool = False
    runs: tuple[float, ...] = ()

    @classmethod
    def of_runs(cls, figures: Sequence[PrintedFigure]) -> PrintedFigure:
        """One figure of several runs: their geometric mean, as ratios ask for."""
        if len(figures) == 1:
            return figures[0]
        values = tuple(figure.value for figure in figures)
        mean = math.exp(math.fsum(map(math.log, values)) / len(values))
        text = f"{mean:.4g} (of {', '.join(str(figure) for figure in figures)})"
        return cls(mean, max(figure.half_width for figure in figures), text, runs=values)

    @classmethod
    def parse(cls, text: str) -> PrintedFigure:
        """Read a decimal number with an optional percent sign; separators of thousands and a decimal comma where they are plain.

        Raises:
            ValueError: says what is wrong with the text (words, signs, ambiguous separators, not finite).
        """
        shown = text.strip()
        body, is_percent = (shown[:-1].rstrip(), True) if shown.endswith("%") else (shown, False)
        match = _NUMBER.fullmatch(_without_separators(body))
        if match is None:
            raise ValueError(_what_is_wrong(body))
        decimals = match["only_decimals"] or match["decimals"] or ""
        unit = (0.01 if is_percent else 1.0) * 10.0 ** int(match["exponent"] or 0)
        value = float(match["digits"]) * unit
        if not math.isfinite(value):
            raise ValueError("is too large")
        return cls(value, 0.5 * 10.0 ** -len(decimals) * unit, shown, is_percent)

    @classmethod
    def parse_ratio(cls, text: str) -> PrintedFigure:
        """Read a speedup as people write it: 1.74, 1.74x, or a gain with its sign, +74 % or -10 %.

        Raises:
            ValueError: no number, a loss of everything, or a percentage without a sign, which may be a ratio or a gain.
        """
        shown = text.strip()
        gain = re.fullmatch(r"([+-])\s*(.+?)\s*%", shown)
        if gain is None:
            if shown.endswith("%"):
                raise ValueError("may be a ratio or a gain; write 1.60 or +60 % for sixty percent faster than plain")
            figure = cls.parse(re.sub(r"\s*[x×]$", "", shown, flags=re.IGNORECASE))
            return cls(figure.value, figure.half_width, shown)
        share = cls.parse(f"{gain[2]}%")
        ratio = 1.0 + share.value if gain[1] == "+" else 1.0 - share.value
        if ratio <= 0.0:
            raise ValueError("is a loss of everything; expected more than -100 %")
        return cls(ratio, share.half_width, shown)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.value, self.value - self.half_width, self.value + self.half_width)

    def __str__(self) -> str:
        return self.text or f"{self.value:g}"


def _without_separators(body: str) -> str:
    if _POINT_DECIMALS.fullmatch(body):
        return re.sub(r"[^\d.]", "", body)
    if _COMMA_DECIMALS.fullmatch(body):
        return re.sub(r"[^\d,]", "", body).replace(",", ".")
    return body


def _what_is_wrong(body: str) -> str:
    lowered = body.lower().lstrip("+-")
    if lowered in {"nan", ".nan", "inf", ".inf", "infinity"}:
        return "is not a finite number; leave the field out where the figure is not known"
    if body.startswith("-"):
        return "is negative"
    if re.fullmatch(r"\d+,\d+", body):
        return (
            "has a comma that may stand before thousands or before decimals; write the digits together with a point before "
            "decimals, such as 1850 or 0.42"
        )
    if body.startswith(("~", "≈", "<", ">", "±")):
        return "is not a plain number; give the number alone and put what is uncertain about it into notes"
    return "is not a number; give the number alone, such as 57.3, and put the rest into notes"
