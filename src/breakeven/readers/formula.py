"""Which definition of accept rate a log uses, from its release or from all its printed (length, rate) pairs together.

One pair often fits several formulas, a whole log seldom does: every pair must fit. Where several still do, nothing is chosen: all
readings are given, with what would settle it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from breakeven.printed.definitions import Definition, definitions_for
from breakeven.printed.formulas import DraftShape, RateFormula
from breakeven.readers.series import Floats
from breakeven.versions import Version

__all__ = ["Formula", "Meaning", "infer_formula"]

# Numbers of drafts tried where the log does not say; the engines' own limits are of this order.
DRAFTS_TRIED = range(1, 65)
# Of the pairs, so many must fit: a line may have been mangled.
MIN_SHARE = 0.97
# A length and a rate averaged over slightly different rounds disagree by a few tenths of a percent.
AVERAGING_SLACK = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One reading of the pairs. num_drafted: drafts a round, the root left out; None where it is not known and not needed."""

    definition: Definition
    shape: DraftShape

    @property
    def formula(self) -> RateFormula:
        assert self.definition.rate is not None
        return self.definition.rate

    @property
    def sense(self) -> int | None:
        """Equal for readings that give the same draft acceptance, as the accept length is printed in any case. Formulas that count
        the bonus and formulas that do not share one only where every draft is accepted."""
        return self.shape.num_drafted


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """status: "release" (the banner decides), "inferred" (only one reading fits the pairs), "ambiguous", "contradictory" or
    "not printed". meanings: all readings that fit, one for each sense, newest release first. expected: where contradictory, what
    the known release would print. num_pairs, num_fitting: printed pairs, and those that the first meaning explains."""

    status: Literal["release", "inferred", "ambiguous", "contradictory", "not printed"]
    meanings: tuple[Meaning, ...] = ()
    expected: tuple[Definition, ...] = ()
    num_pairs: int = 0
    num_fitting: int = 0

    @property
    def shape(self) -> DraftShape | None:
        return self.meanings[0].shape if len(self.meanings) == 1 else None


def infer_formula(engine: str, version: Version | None, shape: DraftShape, pairs: Mapping[tuple[bytes, bytes], int]) -> Formula:
    """`shape` is what the log says about drafts a round, as far as it does."""
    columns = _columns(pairs)
    num_pairs = int(columns[4].sum()) if columns is not None else 0
    if columns is None:
        return Formula(status="not printed")
    rows = [row for row in definitions_for(engine, "log", version).rows if row.rate is not None]
    fitting = _fitting(rows, shape, columns)
    if not fitting:
        every = [row for row in definitions_for(engine, "log").rows if row.rate is not None]
        elsewhere = _fitting(every, shape, columns) or _fitting(every, DraftShape(), columns)
        return Formula(
            status="contradictory", meanings=_distinct(m for m, _ in elsewhere), expected=tuple(rows), num_pairs=num_pairs
        )
    meanings = _distinct(meaning for meaning, _ in fitting)
    if len(meanings) > 1:
        status: Literal["release", "inferred", "ambiguous"] = "ambiguous"
    else:
        status = "release" if version is not None else "inferred"
    return Formula(status=status, meanings=meanings, num_pairs=num_pairs, num_fitting=fitting[0][1])


_Columns = tuple[Floats, Floats, Floats, Floats, Floats]


def _columns(pairs: Mapping[tuple[bytes, bytes], int]) -> _Columns | None:
    """Length, rate, half of the last printed digit of each, and how often; pairs of nothing decoded left out."""
    kept = []
    for (length_text, rate_text), count in pairs.items():
        length, rate = float(length_text), float(rate_text)
        if length >= 1.0 - 10.0 ** -_decimals(length_text):
            kept.append((length, rate, 0.5 * 10.0 ** -_decimals(length_text), 0.5 * 10.0 ** -_decimals(rate_text), float(count)))
    if not kept:
        return None
    table = np.array(kept).T
    return table[0], table[1], table[2], table[3], table[4]


def _decimals(text: bytes) -> int:
    return min(len(text.partition(b".")[2]), 9)


def _fitting(rows: Iterable[Definition], shape: DraftShape, columns: _Columns) -> list[tuple[Meaning, int]]:
    """Readings that fit nearly all pairs as rounded; failing that, as averages of slightly different rounds."""
    rows = tuple(rows)
    for slack in (0.0, AVERAGING_SLACK):
        found = []
        for row in reversed(rows):
            for tried in _shapes(row, shape):
                num_fitting = _num_fitting(row, tried, columns, slack)
                if num_fitting >= MIN_SHARE * columns[4].sum():
                    found.append((Meaning(definition=row, shape=tried), int(num_fitting)))
        if found:
            return found
    return []


def _shapes(row: Definition, shape: DraftShape) -> Iterable[DraftShape]:
    assert row.rate is not None
    if row.rate.is_defined_for(shape):
        return (shape,)
    return (DraftShape(num_drafted=drafts, num_steps=drafts, is_chain=shape.is_chain) for drafts in DRAFTS_TRIED)


def _num_fitting(row: Definition, shape: DraftShape, columns: _Columns, slack: float) -> float:
    lengths, rates, half_lengths, half_rates, counts = columns
    assert row.rate is not None
    denominator = row.rate.denominator(shape)
    assert denominator
    expected = (lengths - (0.0 if row.rate.counts_bonus else 1.0)) / denominator
    allowed = half_rates + half_lengths / denominator + slack * np.maximum(rates, lengths / denominator) + 1e-9
    fits = np.abs(rates - expected) <= allowed
    if shape.max_length is not None:
        fits &= lengths <= shape.max_length + half_lengths + 1e-9
    return float(counts[fits].sum())


def _distinct(meanings: Iterable[Meaning]) -> tuple[Meaning, ...]:
    kept: dict[int | None, Meaning] = {}
    for meaning in meanings:
        kept.setdefault(meaning.sense, meaning)
    return tuple(kept.values())
