"""What a cell of a reported table may hold: counts, limits, words and settings, each with what is refused of it.

Numbers arrive as text, so that `1.00` keeps its digits: how precisely a figure was printed decides what can be read from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator

from breakeven.printed.figures import PrintedFigure

__all__ = ["Admitted", "Cap", "Conditions", "Count", "Drafts", "Text", "figure_of", "known", "scalar", "shown"]

# What people write into a cell whose figure they do not have.
_NOT_KNOWN = frozenset(
    {"", "-", "--", "–", "—", "?", "~", "null", "na", "n/a", "unknown", "not known", "not reported", "not given", "none"}
)
_PER_GPU = re.compile(r"(/|\bper)\s*(gpu|device|card|chip)\b", re.IGNORECASE)
_UNITS = re.compile(r"\s*(tok(ens)?\s*/\s*s(ec)?|tokens? per second|t/s|tps|ms|gb)$", re.IGNORECASE)
_MAX_CONDITIONS = 30


@dataclass(frozen=True, slots=True)
class Cap:
    """How many requests may run at once: a number, no limit (`number` None), or the engine's default, its flag not given."""

    number: int | None = None
    is_default: bool = False


def scalar(value: Any) -> str:
    """The text of a cell that has to hold a single value."""
    if isinstance(value, (list, dict)):
        raise ValueError(f"must be a single value, not a {'list' if isinstance(value, list) else 'mapping'}")
    return str(value).strip()


def known(value: Any) -> str:
    """The text of a cell, or nothing where it only says that the figure is not known."""
    text = scalar(value)
    return "" if text.lower() in _NOT_KNOWN else text


def figure_of(value: Any) -> PrintedFigure | None:
    """A number of the whole server with its unit left off; None where it is not known."""
    if not (text := known(value)):
        return None
    if _PER_GPU.search(text):
        raise ValueError(f"{shown(text)} is for each GPU; give that of the whole server, times its number of GPUs")
    try:
        return PrintedFigure.parse(_UNITS.sub("", text))
    except ValueError as error:
        raise ValueError(f"{shown(text)} {error}") from None


def _count(value: Any) -> int | None:
    figure = figure_of(value)
    if figure is None:
        return None
    if figure.is_percent or figure.value != int(figure.value) or figure.value > 10**7:
        raise ValueError(f"{shown(str(value))} is not a whole number")
    return int(figure.value)


def _at_least_one(value: Any) -> int | None:
    count = _count(value)
    if count is not None and count < 1:
        raise ValueError(f"{shown(str(value))} must be 1 or more; leave the field out where it is not known")
    return count


def _cap(value: Any) -> Cap | None:
    text = scalar(value).lower()
    if text in {"none", "no limit", "unlimited"}:
        return Cap()
    if text in _NOT_KNOWN:
        return None
    match = re.fullmatch(r"(?P<number>\d+)?\s*\(?(?:by )?(?P<default>default)?\)?", text)
    if match is None or text.startswith("("):
        raise ValueError(f"{shown(str(value))} must be a number, 'none' (no limit), 'default' (flag not given) or '64 (default)'")
    number = None if match["number"] is None else _at_least_one(match["number"])
    return Cap(number=number, is_default=match["default"] is not None)


def _text(value: Any) -> str:
    text = " ".join(scalar(value).split())
    if any(not character.isprintable() for character in text):
        raise ValueError(f"{shown(text)} has control characters in it")
    return text


def _known_text(value: Any) -> str | None:
    text = _text(value)
    return None if text.lower() in _NOT_KNOWN - {"none"} else text


def _conditions(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of a setting's name to its value, such as {chunked_prefill: on}")
    if len(value) > _MAX_CONDITIONS:
        raise ValueError(f"has {len(value)} settings; at most {_MAX_CONDITIONS}")
    found = {_text(name).lower().replace(" ", "_").replace("-", "_"): _known_text(inner) for name, inner in value.items()}
    return {name: inner for name, inner in found.items() if inner is not None}


def shown(text: str) -> str:
    """Quoted for a message, cut where it is long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


Count = Annotated[int | None, PlainValidator(_at_least_one)]
# 0 is how base arms are often written, and arms whose drafter is loaded and drafts nothing
Drafts = Annotated[int | None, PlainValidator(_count)]
Admitted = Annotated[Cap | None, PlainValidator(_cap)]
Conditions = Annotated[dict[str, str], PlainValidator(_conditions)]
Text = Annotated[str | None, PlainValidator(_known_text)]
