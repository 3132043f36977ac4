"""Text that every renderer shows: figures with their intervals, and strings from outside made safe to look at.

Names, logs and notes come from other people's files: control, escape and direction-changing characters are replaced by their
code points, so that no string can move the cursor, hide text or reorder a line.
"""

from __future__ import annotations

import math
import unicodedata

from breakeven.verdict.result import AcceptanceSummary, Interval

__all__ = ["MISSING", "OUTCOME_MARKS", "accept_length", "interval", "percent", "plain", "quantity", "speedup"]

MISSING = "–"
# An outcome is never told by colour alone.
OUTCOME_MARKS = {"pays": "▲", "slower": "▼", "no useful difference": "=", "undecided": "?"}
MAX_TEXT = 400


def plain(text: str, limit: int = MAX_TEXT) -> str:
    """`text` on one line without control or format characters, cut at `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(character if _is_visible(character) else _code_point(character) for character in cut)


def _is_visible(character: str) -> bool:
    # Cc control, Cf format (bidi and zero-width), Cs surrogates, Co private, Zl and Zp line separators
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def _code_point(character: str) -> str:
    return " " if character in "\n\t" else f"\\u{ord(character):04x}"


def quantity(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits and no exponent: 0.0123, 4.56, 17900."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}".replace(",", " ")


def interval(value: Interval | None, digits: int = 3, unit: str = "") -> str:
    """`estimate [low, high]`, or the bare estimate where there is no interval."""
    if value is None or not math.isfinite(value.estimate):
        return MISSING
    if value.low is None or value.high is None:
        return f"{quantity(value.estimate, digits)}{unit}"
    return f"{quantity(value.estimate, digits)}{unit} [{_bound(value.low, digits)}, {_bound(value.high, digits)}]"


def _bound(value: float, digits: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return quantity(value, digits)


def speedup(value: Interval | None) -> str:
    """A ratio to two decimals, `1.27x [1.21, 1.33]`."""
    if value is None or not math.isfinite(value.estimate):
        return MISSING
    if value.low is None or value.high is None:
        return f"{value.estimate:.2f}x"
    return f"{value.estimate:.2f}x [{_two(value.low)}, {_two(value.high)}]"


def _two(value: float) -> str:
    if math.isinf(value) or value >= 1000:
        return "∞"
    return f"{value:.2f}"


def accept_length(acceptance: AcceptanceSummary | None) -> str:
    """`2.31 [2.25, 2.37]`, marked with ~ where the engine does not count decode steps."""
    if acceptance is None or not math.isfinite(acceptance.accept_length.estimate):
        return MISSING
    value = acceptance.accept_length
    bounds = f" [{_two(value.low)}, {_two(value.high)}]" if value.low is not None and value.high is not None else ""
    return f"{'' if acceptance.exact else '~'}{value.estimate:.2f}{bounds}"


def percent(share: float | None) -> str:
    return MISSING if share is None or not math.isfinite(share) else f"{share * 100:.0f} %"
