"""Printed figures that fit no definition, and what is said of them."""

from __future__ import annotations

import pytest
from tests.unit.printed.conftest import read


def test_release_that_contradicts_the_pair() -> None:
    reading = read("1.00", "0.25", version="0.5.12")
    assert reading.status == "contradictory"
    assert not reading.is_trusted
    assert "here 0.00" in reading.doubt
    assert "0.5.6 to 0.5.10.post1" in reading.doubt


def test_release_that_prints_no_rate() -> None:
    assert "prints no rate" in read("1.68", "0.42", version="0.5.2").doubt


def test_pair_that_fits_nothing() -> None:
    reading = read("2.5", "0.90")
    assert reading.status == "contradictory"
    assert reading.accept_length is None
    assert "number of draft tokens" in reading.doubt


def test_length_beyond_what_is_drafted() -> None:
    reading = read("4.70", None)
    assert reading.status == "contradictory"


@pytest.mark.parametrize(
    ("length", "rate", "meaning"),
    [
        ("2.53", "0.70", "acceptance of each draft given the ones before"),
        ("2.50", "0.60", "(length - 1) / length"),
        ("2.53", "0.90", ""),
    ],
)
def test_a_pair_that_somebody_worked_out_is_named(length: str, rate: str, meaning: str) -> None:
    reading = read(length, rate, flags=(None, None, 3), version="0.11.0", engine="vllm")
    assert reading.status == "contradictory"
    assert meaning in reading.doubt
    assert ("no rate of this engine" in reading.doubt) == bool(meaning)


@pytest.mark.parametrize("flags", [(1, 1, None), (3, 1, 2), (1, 4, 9), (None, None, 2)])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "inhouse"])
@pytest.mark.parametrize("length", ["2.00", "3.20"])
def test_a_length_at_or_beyond_what_drafts_allow_is_a_reading_too(
    length: str, engine: str, flags: tuple[int | None, int | None, int | None]
) -> None:
    assert read(length, "0.25", flags=flags, version=None, engine=engine).status in {"contradictory", "ambiguous", "settled"}
