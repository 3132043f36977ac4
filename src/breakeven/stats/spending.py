"""What repeated looks cost: nominal error levels by alpha spending (Lan & DeMets, Biometrika 70, 1983).

A plan looks at its data after every block from the fewest it accepts to the most it may use. Plain 95 % intervals at every look
would be wrong far more often than once in twenty, so each look gets a level of its own such that all looks together are wrong at
most ALPHA of the time. The total spent by information fraction t is ALPHA * t**SPENDING_POWER (Kim & DeMets, Biometrika 74, 1987):
little at the first looks, where three launches know little, yet enough to stop there on a large effect.

The levels are those of normal means of known variance (recursive integration after Armitage, McPherson & Rowe, JRSS A 132, 1969),
divided by SMALL_SAMPLE_CORRECTION: t statistics of successive looks are less alike than normal ones, and without it all looks of a
plan of 3 to 8 launches together would be wrong 5.7 % of the time (benchmarks/verdict_statistics.py measures both).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

__all__ = ["ALPHA", "SMALL_SAMPLE_CORRECTION", "SPENDING_POWER", "nominal_alpha", "nominal_alphas", "spent_alpha"]

ALPHA = 0.05
SPENDING_POWER = 3.0
SMALL_SAMPLE_CORRECTION = 1.15

_NUM_NODES = 96
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_NUM_NODES)

Array = npt.NDArray[np.float64]


def spent_alpha(fraction: float) -> float:
    """Error spent by the time `fraction` of the plan's launches are in."""
    return float(ALPHA * min(1.0, max(0.0, fraction)) ** SPENDING_POWER)


@lru_cache(maxsize=256)
def nominal_alphas(first_look: int, last_look: int) -> tuple[float, ...]:
    """Two-sided level of each look at n = first_look..last_look blocks. A single look has the whole ALPHA.

    Raises:
        ValueError: the looks are not 1 <= first_look <= last_look.
    """
    if not 1 <= first_look <= last_look:
        raise ValueError(f"looks go from 1 up, the first not after the last; found {first_look}..{last_look}")
    if first_look == last_look:
        return (ALPHA,)
    levels: list[float] = []
    spent = 0.0
    nodes, density, since = np.zeros(1), np.ones(1), 0.0
    for num_blocks in range(first_look, last_look + 1):
        fraction = num_blocks / last_look
        step = math.sqrt(fraction - since)
        to_spend, spent = spent_alpha(fraction) - spent, spent_alpha(fraction)
        bound = _bound(nodes, density, step, to_spend, fraction)
        levels.append(2.0 * float(ndtr(-bound / math.sqrt(fraction))) / SMALL_SAMPLE_CORRECTION)
        next_nodes = bound * _NODES
        kernel = np.exp(-0.5 * ((next_nodes[:, None] - nodes[None, :]) / step) ** 2) / (step * math.sqrt(2.0 * math.pi))
        density = bound * _WEIGHTS * (kernel @ density)
        nodes, since = next_nodes, fraction
    return tuple(levels)


def _bound(nodes: Array, density: Array, step: float, to_spend: float, fraction: float) -> float:
    """The bound on |B(fraction)| that paths still inside cross with probability `to_spend`; `density` carries the weights."""
    low, high = 0.0, -float(ndtri(1e-15)) * math.sqrt(fraction)
    for _ in range(60):
        middle = 0.5 * (low + high)
        crossing = float(density @ (ndtr((nodes - middle) / step) + ndtr((-middle - nodes) / step)))
        low, high = (middle, high) if crossing > to_spend else (low, middle)
    return high


def nominal_alpha(num_blocks: int, min_blocks: int, max_blocks: int) -> float:
    """The level of the interval after `num_blocks` of a plan of min_blocks..max_blocks.

    Before the first planned look, where nothing is decided for good, the level is what the spending function allows by then; past
    the last, which a plan whose budget was raised can reach, it is the last look's.
    """
    if min_blocks >= max_blocks:
        return ALPHA
    if num_blocks < min_blocks:
        return spent_alpha(num_blocks / max_blocks) / SMALL_SAMPLE_CORRECTION
    return nominal_alphas(min_blocks, max_blocks)[min(num_blocks, max_blocks) - min_blocks]
