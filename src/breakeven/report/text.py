"""Text that every renderer shows: figures with their intervals, and strings from outside made safe to look at.

Names, logs and notes come from other people's files: control, escape and direction-changing characters are replaced by their
code points, so that no string can move the cursor, hide text or reorder a line.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable

from breakeven.report.lookup import Lookup
from breakeven.verdict.result import AcceptanceSummary, Interval, Result

__all__ = [
    "MISSING",
    "OUTCOME_MARKS",
    "accept_length",
    "interval",
    "levels",
    "outcome",
    "percent",
    "plain",
    "quantity",
    "simulated",
    "speedup",
    "tokens_a_round",
    "two_digits",
]

MISSING = "–"
# An outcome is never told by colour alone.
OUTCOME_MARKS = {"pays": "▲", "slower": "▼", "no useful difference": "=", "undecided": "?"}
MAX_TEXT = 400
# Some scripts need two combining marks on a letter; a tower of them paints over the lines around it.
MAX_COMBINING = 3
# Control, format (bidi and zero-width), surrogates, private use, unassigned, line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: str, limit: int = MAX_TEXT) -> str:
    """`text` on one line without control or format characters, cut at `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isascii() and cut.isprintable():
        return cut
    shown = []
    num_combining = 0
    for character in cut:
        category = unicodedata.category(character)
        num_combining = num_combining + 1 if category in {"Mn", "Me"} else 0
        shown.append(_code_point(character) if category in INVISIBLE or num_combining > MAX_COMBINING else character)
    return "".join(shown)


def _code_point(character: str) -> str:
    if character in "\n\t":
        return " "
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


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
    return f"{value.estimate:.2f}x [{two_digits(value.low)}, {two_digits(value.high)}]"


def two_digits(value: float) -> str:
    """A ratio or a length: 1.27; beyond a thousand it means no bound."""
    if math.isinf(value) or value >= 1000:
        return "∞"
    return f"{value:.2f}"


def tokens_a_round(value: Interval | None) -> str:
    """An accept length or a break-even to two decimals, `2.31 [2.25, 2.37]`."""
    if value is None or not math.isfinite(value.estimate):
        return MISSING
    bounds = f" [{two_digits(value.low)}, {two_digits(value.high)}]" if value.low is not None and value.high is not None else ""
    return f"{value.estimate:.2f}{bounds}"


def accept_length(acceptance: AcceptanceSummary | None) -> str:
    """`2.31 [2.25, 2.37]`, marked with ~ where the engine does not count decode steps."""
    if acceptance is None:
        return MISSING
    shown = tokens_a_round(acceptance.accept_length)
    return shown if acceptance.exact or shown == MISSING else f"~{shown}"


def percent(share: float | None) -> str:
    return MISSING if share is None or not math.isfinite(share) else f"{share * 100:.0f} %"


def levels(values: Iterable[Interval | None]) -> str:
    """What the intervals claim to cover: "95 %", or "95 to 99 %" where looks at unfinished data were paid for."""
    known = {value.level for value in values if value is not None and value.low is not None}
    if not known:
        return ""
    least, most = f"{min(known) * 100:.3g}", f"{max(known) * 100:.3g}"
    return f"{least} %" if least == most else f"{least} to {most} %"


def outcome(lookup: Lookup, arm: str, load: str) -> str:
    """The outcome with its mark; forced arms are probes of what a round costs and cannot be run, whatever their ratio."""
    if lookup.is_probe(arm):
        return "probe"
    comparison = lookup.comparison(arm, load)
    if comparison is None:
        return "baseline" if lookup.is_baseline(arm, load) else MISSING
    if comparison.outcome is None:
        return "✗ output differs"
    predicted = " (predicted)" if comparison.basis == "predicted" else ""
    return f"{OUTCOME_MARKS[comparison.outcome]} {comparison.outcome}{predicted}"


def simulated(result: Result) -> str:
    """What no reader of figures of the fake engine may miss; nothing where every arm is a real engine's."""
    names = [plain(arm.name, 40) for arm in result.arms if arm.engine == "fake"]
    if not names:
        return ""
    if len(names) == len(result.arms):
        return "Simulated, not measured: engine fake draws these figures from what the plan declares."
    return f"Simulated, not measured: {', '.join(names)}. Engine fake draws their figures from what the plan declares."
