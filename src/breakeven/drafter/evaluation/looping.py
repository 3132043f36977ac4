"""Answers that repeat themselves, seen in their tokens: easy to draft for, so their accept length is too good to be true.

The same two signs as for the text of served answers (one phrase again and again up to the end; few distinct n-grams), here on token
ids, which is what training and evaluation have.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["is_looping"]

# What is looked at, and how much there must be before repetition is judged at all.
TAIL_TOKENS = 256
MIN_TOKENS = 40
# Three times running to the very end, over at least half of the part looked at.
MIN_REPEATS = 3
MIN_LOOP_SHARE = 0.5
NGRAM = 4
MIN_DISTINCT_SHARE = 0.35


def is_looping(token_ids: Sequence[int]) -> bool:
    """Whether an answer ends in a phrase that repeats, or says little that is new. Short answers are never accused."""
    tail = list(token_ids[-TAIL_TOKENS:])
    if len(tail) < MIN_TOKENS:
        return False
    ngrams = {tuple(tail[start : start + NGRAM]) for start in range(len(tail) - NGRAM + 1)}
    return len(ngrams) / (len(tail) - NGRAM + 1) < MIN_DISTINCT_SHARE or _ends_in_a_loop(tail)


def _ends_in_a_loop(tail: list[int]) -> bool:
    for period in range(1, len(tail) // MIN_REPEATS + 1):
        length = period
        while length < len(tail) and tail[-1 - length] == tail[-1 - length + period]:
            length += 1
        if length >= max(MIN_LOOP_SHARE * len(tail), MIN_REPEATS * period):
            return True
    return False
