"""c as a number and an accept length: the identity with the drift of launches around it, and nothing beyond what was given."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.errors import UsageError
from breakeven.verdict.predicted.given import predict_from_costs, read_costs


@pytest.mark.parametrize(
    ("length", "speedup", "outcome"), [(1.68, 0.86, "slower"), (2.26, 1.16, "pays"), (2.05, 1.05, "undecided")]
)
def test_one_c_and_three_accept_lengths(length: float, speedup: float, outcome: str) -> None:
    curve = AcceptanceCurve.from_lengths({3: length})
    (batch,) = predict_from_costs(read_costs("3:1.95"), curve, 8, (), threshold=0.03).batches
    (point,) = batch.points
    assert point.speedup is not None
    assert point.speedup.value == pytest.approx(speedup, abs=0.005)
    assert point.speedup.high / point.speedup.value >= 1.1 - 1e-9
    assert (batch.batch, point.outcome) == (8, outcome)


def test_the_best_of_several_numbers_of_drafts_and_none_that_was_not_given() -> None:
    curve = AcceptanceCurve((0.8, 0.5, 0.3))
    result = predict_from_costs(read_costs("1:1.20, 3:1.95"), curve, 4, (1, 2, 3), threshold=0.03)
    assert result.batches[0].best == 1
    assert [entry.label for entry in result.unpredicted] == ["B=4, k=2"]
    assert "for nothing else" in result.unpredicted[0].reason


@pytest.mark.parametrize("text", ["1.95", "3:", "0:1.5", "3:0.5", "3:95 %", "x:1.5", "3:1e9", "", "²:1.5"])
def test_what_is_no_c_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected c by number of drafts"):
        read_costs(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--batch", "8"], "needs --accept"),
        (["--accept", "3:2"], "needs --batch"),
        (["--accept", "3:2", "--batch", "1,8"], "--batch"),
    ],
)
def test_c_belongs_to_one_load_and_wants_an_acceptance(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["predict", "--break-even", "3:1.95", *words])
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)


def test_a_doubt_about_the_acceptance_stands_beside_the_headline() -> None:
    words = ["predict", "--break-even", "1:1.2,3:1.95", "--batch", "8", "--accept"]

    def said(*more: str) -> str:
        return " ".join(CliRunner().invoke(app, [*words, *more]).stdout.split())

    assert "write conditional:0.8,0.8,0.8" in said("0.8,0.8,0.8")
    assert "write K:60%" in said("60%")
    assert "write K" not in said("60%", "--num-draft-tokens", "1")


def test_one_c_for_each_number_of_drafts() -> None:
    with pytest.raises(UsageError, match="3 drafts stand there twice"):
        read_costs("3:1.95,3:2.5")


def test_c_that_falls_with_more_drafts_is_doubted() -> None:
    curve = AcceptanceCurve((0.7, 0.5, 0.36))

    def doubts(text: str) -> list[tuple[str, ...]]:
        (batch,) = predict_from_costs(read_costs(text), curve, 8, (), threshold=0.03).batches
        return [point.doubts for point in batch.points]

    assert all("c falls from 1.9 with 1 draft to 1.5 with 3" in found[0] for found in doubts("1:1.9,3:1.5"))
    # launches differ by as much
    assert doubts("1:1.60,3:1.55") == [(), ()]
