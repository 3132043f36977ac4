from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.printed.formulas import DraftShape, LengthFormula, RateFormula, chain_alpha

CHAIN_OF_3 = DraftShape(num_drafted=3, num_steps=3, is_chain=True)


@pytest.mark.parametrize(
    ("formula", "rate", "floor"),
    [
        (RateFormula.ACCEPTED_OVER_DRAFTED, 0.68 / 3, 0.0),
        (RateFormula.LENGTH_OVER_SLOTS, 0.42, 0.25),
        (RateFormula.LENGTH_OVER_STEPS_PLUS_ONE, 0.42, 0.25),
        (RateFormula.ACCEPTED_OVER_STEPS, 0.68 / 3, 0.0),
        (RateFormula.SHARE_OF_OUTPUT, 0.68 / 1.68, 0.0),
        (RateFormula.CHAIN_ALPHA, 0.4240, 0.0),
    ],
)
def test_accept_length_of_1_68_with_three_drafts(formula: RateFormula, rate: float, floor: float) -> None:
    assert formula.rate(1.68, CHAIN_OF_3) == pytest.approx(rate, abs=1e-4)
    assert formula.accept_length(formula.rate(1.68, CHAIN_OF_3), CHAIN_OF_3) == pytest.approx(1.68)
    assert formula.floor(CHAIN_OF_3) == pytest.approx(floor, abs=1e-9)
    assert formula.counts_bonus == (floor > 0)


@given(
    formula=st.sampled_from(list(RateFormula)),
    drafts=st.integers(1, 20),
    filled=st.floats(0.0, 1.0),
)
def test_there_and_back(formula: RateFormula, drafts: int, filled: float) -> None:
    shape = DraftShape(num_drafted=drafts, num_steps=drafts, is_chain=True)
    length = 1.0 + filled * drafts
    assert formula.accept_length(formula.rate(length, shape), shape) == pytest.approx(length, rel=1e-6)


def test_a_tree_divides_by_all_its_nodes_but_the_depth_bounds_the_length() -> None:
    tree = DraftShape(num_drafted=59, num_steps=8, is_chain=False)
    assert RateFormula.ACCEPTED_OVER_DRAFTED.rate(3.2, tree) == pytest.approx(2.2 / 59)
    assert RateFormula.LENGTH_OVER_SLOTS.rate(3.2, tree) == pytest.approx(3.2 / 60)
    assert RateFormula.LENGTH_OVER_STEPS_PLUS_ONE.rate(3.2, tree) == pytest.approx(3.2 / 9)
    assert tree.max_length == 9


def test_chain_alpha() -> None:
    assert chain_alpha(1.0, 3) == pytest.approx(0.0, abs=1e-9)
    assert chain_alpha(4.0, 3) == pytest.approx(1.0)
    assert chain_alpha(1.68, 3) == pytest.approx(0.42, abs=0.005)
    with pytest.raises(ValueError, match="not between"):
        chain_alpha(4.2, 3)


def test_unknown_shape_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ValueError, match="needs the number"):
        RateFormula.LENGTH_OVER_SLOTS.rate(1.5, DraftShape())


def test_length_without_the_bonus() -> None:
    assert LengthFormula.BONUS_EXCLUDED.printed(1.45) == pytest.approx(0.45)
    assert LengthFormula.BONUS_INCLUDED.printed(1.45) == pytest.approx(1.45)
