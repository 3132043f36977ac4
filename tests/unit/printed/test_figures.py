from __future__ import annotations

import pytest

from breakeven.printed.figures import Bounds, PrintedFigure


@pytest.mark.parametrize(
    ("text", "value", "half_width"),
    [
        ("1.00", 1.0, 0.005),
        ("0.42", 0.42, 0.005),
        ("42 %", 0.42, 0.005),
        ("57.1%", 0.571, 0.0005),
        ("3", 3.0, 0.5),
        (".5", 0.5, 0.05),
        ("2e3", 2000.0, 500.0),
        ("+2.5", 2.5, 0.05),
    ],
)
def test_value_and_what_rounding_hides(text: str, value: float, half_width: float) -> None:
    figure = PrintedFigure.parse(text)
    assert figure.value == pytest.approx(value)
    assert figure.half_width == pytest.approx(half_width)
    assert str(figure) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nan", "finite"),
        (".inf", "finite"),
        ("-0.3", "negative"),
        ("2,370", "comma"),
        ("2,370 tok/s", "not a number"),
        ("1,2,3", "not a number"),
        ("~600", "plain number"),
        (">48", "plain number"),
        ("fast", "not a number"),
        ("1.5k", "not a number"),
        ("", "not a number"),
        ("1.2.3", "not a number"),
    ],
)
def test_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PrintedFigure.parse(text)


def test_meet_keeps_its_own_guess_where_allowed() -> None:
    assert Bounds(2.0, 1.5, 2.5).meet(Bounds(1.9, 1.8, 2.1)) == Bounds(2.0, 1.8, 2.1)
    assert Bounds(2.0, 1.5, 2.5).meet(Bounds(1.68, 1.66, 1.7)) == Bounds(1.68, 1.66, 1.7)
    assert Bounds(2.0, 1.9, 2.1).meet(Bounds(3.0, 2.9, 3.1)) is None


@pytest.mark.parametrize(
    ("text", "value", "half_width"),
    [
        ("0,42", 0.42, 0.005),
        ("0,425", 0.425, 0.0005),
        ("612,5", 612.5, 0.05),
        ("1.102,4", 1102.4, 0.05),
        ("2,950.5", 2950.5, 0.05),
        ("1,234,567", 1_234_567.0, 0.5),
        ("2 950", 2950.0, 0.5),
        ("45,0 %", 0.45, 0.0005),
        # a point before three digits stays a decimal point: how this product writes numbers itself
        ("12.345", 12.345, 0.0005),
    ],
)
def test_separators_that_can_mean_one_thing_only(text: str, value: float, half_width: float) -> None:
    figure = PrintedFigure.parse(text)
    assert figure.value == pytest.approx(value)
    assert figure.half_width == pytest.approx(half_width)
