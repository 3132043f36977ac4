"""An effect, noise, or not decided."""

from __future__ import annotations

import numpy as np
import pytest

from breakeven.readers.effects import Judgement, Level, judge, level, margin
from breakeven.readers.phases import phase_edges


def at(mean: float, error: float) -> Level:
    return Level(mean=mean, error=error, rounds=1000.0, num_lines=10)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (at(2.41, 0.01), at(2.27, 0.01), "effect"),
        (at(2.49, 0.0), at(2.52, 0.0), "noise"),
        (at(2.0, 0.0), at(2.05, 0.0), "noise"),
        (at(2.0, 0.14), at(2.3, 0.14), "undecided"),  # within two standard errors
        (at(2.0, 0.01), at(2.06, 0.01), "undecided"),  # one standard error brings it back within the margin
        (at(1.0, 0.0), at(1.1, 0.0), "effect"),
    ],
)
def test_judge(one: Level, other: Level, expected: Judgement) -> None:
    assert judge(one, other) == judge(other, one) == expected


def test_margin_is_a_share_of_long_lengths() -> None:
    assert margin(1.2, 1.1) == 0.05
    assert margin(4.0, 3.0) == pytest.approx(0.1)


def test_the_error_of_counting_rounds_is_that_of_a_chain() -> None:
    rng = np.random.default_rng(0)
    alpha, drafts, num_lines, rounds = 0.6, 3, 400, 250
    accepted = (rng.random((num_lines, rounds, drafts)) < alpha).cumprod(axis=2).sum(axis=2)
    lengths = 1.0 + accepted.mean(axis=1)
    one = level(lengths, np.full(num_lines, float(rounds)), drafts)
    assert one.mean == pytest.approx(1 + 0.6 + 0.36 + 0.216, abs=0.01)
    assert one.error == pytest.approx(lengths.std() / num_lines**0.5, rel=0.5)
    # lines that are alike among neighbours say less than their number
    waves = lengths + 0.3 * np.sin(np.arange(num_lines) / 30)
    assert level(waves, np.full(num_lines, float(rounds)), drafts).error > 3 * one.error


def test_phases_are_found_where_they_are() -> None:
    rng = np.random.default_rng(1)
    lengths = np.concatenate([np.full(50, 3.0), np.full(20, 1.5), np.full(70, 2.9)]) + rng.normal(0, 0.1, 140)
    assert phase_edges(lengths, np.full(140, 320.0), 3) == [(0, 50), (50, 70), (70, 140)]
    assert phase_edges(2.7 + rng.normal(0, 0.1, 140), np.full(140, 320.0), 3) == [(0, 140)]
    assert phase_edges(np.empty(0), np.empty(0), 3) == []
