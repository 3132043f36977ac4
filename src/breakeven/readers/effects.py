"""Differences of accept length: an effect, noise, or not decided by these lines.

Runs of the same thing differ by a few percent (4.44, 4.39, 4.35 in three rounds of one server; 2.49 and 2.52 at two loads), so a
difference within `margin` is noise however many lines there are. Beyond it, chance decides: what two standard errors do not exclude
is not decided, nor what one of them would bring back within the margin. The standard error is the larger of two: of counting rounds
(each accepts between none and all of its drafts), and of the means of up to 20 blocks of neighbouring lines, which sees that
neighbours are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from breakeven.printed.formulas import chain_alpha
from breakeven.readers.series import Floats

__all__ = ["MIN_BLOCKS", "Judgement", "Level", "judge", "level", "margin"]

MARGIN_TOKENS = 0.05
MARGIN_SHARE = 0.025
STANDARD_ERRORS = 2.0
NUM_BLOCKS = 20
MIN_BLOCKS = 4

Judgement = Literal["effect", "noise", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A mean accept length over lines, weighted by rounds. error: standard error."""

    mean: float
    error: float
    rounds: float
    num_lines: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {2 * self.error:.2f}" if math.isfinite(self.error) else f"{self.mean:.2f}"


def level(lengths: Floats, rounds: Floats, num_drafted: int | None) -> Level:
    """`lengths` of lines in their order, none of them NaN, over so many `rounds` each (NaN or 0: alike)."""
    if not len(lengths):
        return Level(mean=math.nan, error=math.inf, rounds=0.0, num_lines=0)
    weights = np.where(np.isfinite(rounds) & (rounds > 0), rounds, 0.0)
    if weights.sum() <= 0:
        weights = np.ones_like(lengths)
    total = float(weights.sum())
    mean = float((lengths * weights).sum()) / total
    error = _round_deviation(mean, num_drafted) / math.sqrt(total)
    num_blocks = min(NUM_BLOCKS, len(lengths))
    if num_blocks >= MIN_BLOCKS:
        size, num_larger = divmod(len(lengths), num_blocks)
        blocks = np.arange(num_blocks)
        firsts = size * blocks + np.minimum(blocks, num_larger)
        of_lines = weights + 1e-12
        means = np.add.reduceat(lengths * of_lines, firsts) / np.add.reduceat(of_lines, firsts)
        error = max(error, float(means.std(ddof=1)) / math.sqrt(num_blocks))
    return Level(mean=mean, error=error, rounds=total, num_lines=len(lengths))


def _round_deviation(mean: float, num_drafted: int | None) -> float:
    """s.d. of the tokens of one round, as if each draft were accepted with the same probability given those before."""
    if mean <= 1.0:
        return 0.0
    if not num_drafted or mean >= num_drafted + 1:
        return math.sqrt((mean - 1.0) * mean)
    alpha = chain_alpha(mean, num_drafted)
    second = sum((2 * position - 1) * alpha**position for position in range(1, num_drafted + 1))  # E[j^2] from P(j >= i)
    return math.sqrt(max(second - (mean - 1.0) ** 2, 0.0))


def margin(*lengths: float) -> float:
    """The difference below which nothing is called an effect."""
    return max(MARGIN_TOKENS, MARGIN_SHARE * max(lengths))


def judge(one: Level, other: Level, *, standard_errors: float = STANDARD_ERRORS) -> Judgement:
    difference = abs(one.mean - other.mean)
    if not difference > margin(one.mean, other.mean):
        return "noise"
    error = math.hypot(one.error, other.error)
    return "effect" if difference > max(standard_errors * error, margin(one.mean, other.mean) + error) else "undecided"
