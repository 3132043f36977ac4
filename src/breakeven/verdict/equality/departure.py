"""The first difference between two answers to one prompt, and how near a tie it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from breakeven.loadgen.answers import Alternatives, GreedyAnswer

__all__ = ["Departure", "departure", "departure_in_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How far two answers agree.

    position: of the first difference, counted in tokens from 0 (in characters where a server does not name its tokens: `in_tokens`
        is False then); None where they are the same.
    length: how many positions were compared.
    margin: by how much, in nats, the first answer's server preferred its own token there to the other's; None where it is unknown.
        At temperature 0 rounding moves a choice only where this is small.
    at_least: the other token is not among the alternatives told, so the margin is this or more.
    """

    position: int | None
    length: int
    in_tokens: bool = True
    margin: float | None = None
    at_least: bool = False


def departure(reference: GreedyAnswer, other: GreedyAnswer) -> Departure:
    """Where `other` leaves `reference`; the margin is read from the reference's alternatives, whose prefix is the same."""
    if reference.tokens and other.tokens:
        position, length = _first_difference(reference.tokens, other.tokens)
        if position is None and reference.text != other.text:
            # tokens that are parts of characters can read alike without being the same
            return departure_in_text(reference, other)
        margin, at_least = _margin(reference.alternatives, reference.tokens, other.tokens, position)
        return Departure(position=position, length=length, margin=margin, at_least=at_least)
    if reference.token_ids and other.token_ids:
        position, length = _first_difference(reference.token_ids, other.token_ids)
        return Departure(position=position, length=length)
    return departure_in_text(reference, other)


def departure_in_text(reference: GreedyAnswer, other: GreedyAnswer) -> Departure:
    """The same by characters, whatever the servers tell of tokens."""
    position, length = _first_difference(reference.text, other.text)
    return Departure(position=position, length=length, in_tokens=False)


def _first_difference(first: Sequence[object], second: Sequence[object]) -> tuple[int | None, int]:
    """(position, positions compared). One that goes on where the other has ended differs there: the end is a choice too."""
    for position, (mine, theirs) in enumerate(zip_longest(first, second)):
        if mine != theirs:
            return position, position + 1
    return None, len(first)


def _margin(
    alternatives: Sequence[Alternatives], mine: Sequence[str], theirs: Sequence[str], position: int | None
) -> tuple[float | None, bool]:
    if position is None or position >= min(len(mine), len(theirs), len(alternatives)):
        return None, False
    told = dict(alternatives[position])
    own = told.get(mine[position])
    if own is None or not told:
        return None, False
    if theirs[position] in told:
        return own - told[theirs[position]], False
    return own - min(told.values()), True
