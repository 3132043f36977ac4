from __future__ import annotations

import pytest

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.prediction_error import KINDS
from breakeven.costs.round_line import RoundLine

# milliseconds per token and accept length of two heads by drafts a round, plain 7.07 ms
EAGLE3 = {2: (4.32, 2.36), 3: (4.09, 2.79), 4: (4.05, 3.08), 5: (4.13, 3.32), 6: (4.20, 3.46), 7: (4.29, 3.54)}
EAGLE1 = {2: (4.37, 2.10), 3: (4.29, 2.29), 4: (4.48, 2.39), 5: (4.71, 2.43), 6: (4.94, 2.45), 7: (5.20, 2.47)}


def test_a_draft_more_costs_a_millisecond_and_the_rest_is_fixed() -> None:
    line = RoundLine.of({drafts: per_token * length for drafts, (per_token, length) in EAGLE3.items()})
    assert line.each == pytest.approx(1.0, abs=0.05)
    assert line.at(2, error=0.0).value == pytest.approx(10.2, abs=0.2)


@pytest.mark.parametrize("rows", [EAGLE3, EAGLE1])
@pytest.mark.parametrize("wanted", [5, 6, 7])
def test_three_numbers_of_drafts_predict_the_others(rows: dict[int, tuple[float, float]], wanted: int) -> None:
    known = {drafts: rows[drafts] for drafts in (2, 3, 4)}
    error = KINDS["other numbers of drafts"].tenth
    time = RoundLine.of({drafts: per_token * length for drafts, (per_token, length) in known.items()}).at(wanted, error=error)
    length = AcceptanceCurve.from_lengths({drafts: al for drafts, (_, al) in known.items()}).length(wanted)
    assert time.is_outside
    assert time.low / length.high < rows[wanted][0] < time.high / length.low
    assert time.value / length.value == pytest.approx(rows[wanted][0], rel=0.07)


def test_two_points_make_a_line_that_claims_no_fit_of_its_own() -> None:
    line = RoundLine.of({1: 1.2, 3: 1.6})
    assert line.residual_sd is None
    assert line.at(2, error=0.1).high == pytest.approx(1.4 * 1.1)


def test_noise_does_not_make_drafts_free() -> None:
    assert RoundLine.of({1: 2.0, 3: 1.5}).each == 0.0


@pytest.mark.parametrize("rounds", [{}, {3: 1.0}, {1: 0.0, 2: 1.0}])
def test_too_little_is_refused(rounds: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"round times"):
        RoundLine.of(rounds)
