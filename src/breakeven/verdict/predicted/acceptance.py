"""A drafter's acceptance as users have it: shares by position, accept lengths, or the JSON of an evaluation."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.errors import UsageError
from breakeven.inputs.text import read_text
from breakeven.printed.figures import PrintedFigure

__all__ = ["ReadAcceptance", "read_acceptance"]

MAX_BYTES = 20_000_000
MAX_DEPTH = 8
MAX_POSITIONS = 128
CONDITIONAL = "conditional:"
EXPECTED = (
    "shares by position (0.83,0.60,0.45: P(first i drafts accepted)) or conditional:0.83,0.72,0.75 (each given those before), "
    "accept lengths by number of drafts (3:2.88 or 2:2.36,4:3.08), accepted of drafted tokens (3:55%), or a JSON file of breakeven "
    "eval or breakeven read"
)
FORMS = f"expected {EXPECTED}"


class ReadAcceptance(NamedTuple):
    """`told`: what it was read from, in words. `doubt`: a sentence where the figures look like something else than was taken."""

    curve: AcceptanceCurve
    told: str
    doubt: str = ""


def read_acceptance(text: str) -> ReadAcceptance:
    """The curve that a user's figures give.

    Raises:
        UsageError: nothing of the expected forms, a file that cannot be read, or figures that contradict each other.
    """
    path = Path(text)
    if text.endswith(".json") or (path.is_file() and not _is_numbers(text)):
        return _from_file(path)
    if not _is_numbers(text):
        raise UsageError(f"--accept {text[:60]!a}: {FORMS}")
    is_conditional, body = text.strip().startswith(CONDITIONAL), text.strip().removeprefix(CONDITIONAL)
    parts = [part.strip() for part in body.split(",") if part.strip()]
    try:
        if any(":" in part for part in parts):
            return _from_lengths([part.partition(":") for part in parts])
        figures = [_figure(part) for part in parts]
        shares = tuple(figure.value for figure in figures)
        told = ", ".join(f"{share:g}" for share in shares)
        if is_conditional:
            curve = AcceptanceCurve.from_conditional(shares)
            worth = {lever.position: 100.0 * lever.gain for lever in curve.levers(len(shares), 0.0)}
            rounding = _rounding(figures, [worth[position] for position in range(1, len(shares) + 1)])
            return ReadAcceptance(
                replace(curve, rounding=rounding),
                f"conditional acceptance {told}, accept length {curve.length(len(shares)).value:.2f} at k={len(shares)}",
            )
        if len(shares) == 1 and shares[0] > 1.0:
            raise ValueError("an accept length needs its number of drafts: write 3:2.88 for 2.88 with three drafts")
        curve = AcceptanceCurve(shares, rounding=_rounding(figures, [1.0] * len(figures)))
        return ReadAcceptance(curve, f"joint acceptance {told}", _doubt(shares, parts[0]))
    except ValueError as error:
        raise UsageError(f"--accept {text[:60]!a}: {error}; {FORMS}") from None


def _from_lengths(pairs: list[tuple[str, str, str]]) -> ReadAcceptance:
    """Accept lengths by number of drafts; a percentage is accepted over drafted tokens, the bonus in neither."""
    lengths: dict[int, float] = {}
    rounding = 0.0
    for drafts, _, length in pairs:
        number, figure = int(drafts), _figure(length)
        if not number <= MAX_POSITIONS:
            raise ValueError(f"expected at most {MAX_POSITIONS} drafts")
        if number in lengths:
            raise ValueError(f"{number} drafts stand there twice; give one figure for each number of drafts")
        lengths[number] = 1.0 + number * figure.value if figure.is_percent else figure.value
        rounding = max(rounding, figure.half_width * (number if figure.is_percent else 1))
    told = f"accept length {', '.join(f'{al:.4g} at k={k}' for k, al in lengths.items())}"
    if len(lengths) == 1 and max(lengths) > 1:
        told += "; with fewer drafts as if every position lost alike, which shares by position would settle"
    return ReadAcceptance(replace(AcceptanceCurve.from_lengths(lengths), rounding=rounding), told)


def _figure(text: str) -> PrintedFigure:
    try:
        return PrintedFigure.parse(text)
    except ValueError:
        raise ValueError(f"{text.strip()!a} is not a number") from None


def _rounding(figures: Sequence[PrintedFigure], worth: Sequence[float]) -> float:
    """Half-width of the accept length that the digits of shares leave, each worth so much; none or all of the drafts is exact."""
    return math.hypot(*(figure.half_width * gain for figure, gain in zip(figures, worth, strict=True) if 0.0 < figure.value < 1.0))


def _doubt(shares: tuple[float, ...], first: str) -> str:
    """Drafts after the first are lost now and then; shares that do not fall are likelier given each those before."""
    if len(shares) == 1:
        return f"One share was taken as the first draft's; if it is accepted over drafted tokens of K drafts, write K:{first}."
    alike = len(shares) > 1 and any(0.0 < later == earlier < 1.0 for earlier, later in itertools.pairwise(shares))
    if not alike:
        return ""
    given = f"{CONDITIONAL}{','.join(f'{share:g}' for share in shares)}"
    length = AcceptanceCurve.from_conditional(shares).length(len(shares)).value
    return (
        f"In the shares given a later position loses nothing, which no drafter does (accept length {1.0 + sum(shares):.2f}); if "
        f"each is given those before, write {given} (accept length {length:.2f})."
    )


def _is_numbers(text: str) -> bool:
    body = text.strip().removeprefix(CONDITIONAL)
    return bool(body) and all(character in "0123456789.,: %" for character in body)


def _from_file(path: Path) -> ReadAcceptance:
    content = read_text(path, max_bytes=MAX_BYTES, expected=EXPECTED, error=UsageError, option="--accept")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"--accept {path}: is not JSON; {FORMS}") from None
    found = _find(document, 0)
    if found is None:
        raise UsageError(f"--accept {path}: has no acceptance by position (joint), nor accept_length with num_drafted; {FORMS}")
    try:
        curve = _curve(found)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--accept {path}: {error}") from None
    return ReadAcceptance(
        curve, f"{path.name}: accept length {curve.length(curve.num_measured).value:.2f} at k={curve.num_measured}"
    )


def _curve(found: dict[str, Any]) -> AcceptanceCurve:
    """From the object of an evaluation or of a reading; servers that print no positions leave a chain of one conditional share."""
    low, high, error = (found.get(key) for key in ("accept_length_low", "accept_length_high", "uncertainty"))
    half = None
    if isinstance(low, float) and isinstance(high, float) and high >= low:
        half = (high - low) / 2
    elif isinstance(error, float) and error > 0.0:
        half = error  # two standard errors
    if found.get("joint"):
        rounds = found.get("num_rounds")
        joint = tuple(float(share) for share in found["joint"])
        return AcceptanceCurve(joint, rounds if type(rounds) is int and rounds > 0 else None, half_width=half)
    return replace(AcceptanceCurve.from_lengths({int(found["num_drafted"]): float(found["accept_length"])}), half_width=half)


def _find(document: Any, depth: int) -> dict[str, Any] | None:
    """The first object with shares by position or an accept length; figures without looping answers before those with them."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(document, dict):
        joint, num_drafted = document.get("joint"), document.get("num_drafted")
        if isinstance(joint, list) and 0 < len(joint) <= MAX_POSITIONS:
            return document
        # in an evaluation num_drafted counts all drafts, in a reading those of a round: only the latter comes without shares
        is_told = type(document.get("accept_length")) is float and type(num_drafted) is int and 0 < num_drafted <= MAX_POSITIONS
        if is_told:
            return document
        first = [document[key] for key in ("without_loops", "overall") if key in document]
        return next((found for value in (*first, *document.values()) if (found := _find(value, depth + 1)) is not None), None)
    if isinstance(document, list):
        return next((found for value in document[:100] if (found := _find(value, depth + 1)) is not None), None)
    return None
