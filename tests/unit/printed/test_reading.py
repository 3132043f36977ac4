"""Printed pairs from public logs, each with what it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.printed.conftest import read

from breakeven.printed.formulas import DraftShape, RateFormula
from breakeven.printed.result import Reading

OLD, NEW = RateFormula.LENGTH_OVER_SLOTS, RateFormula.ACCEPTED_OVER_DRAFTED


def length_of(reading: Reading) -> float:
    assert reading.accept_length is not None
    return reading.accept_length.estimate


@pytest.mark.parametrize(
    ("length", "rate", "formula", "slots"),
    [
        ("2.17", "0.54", OLD, 4),
        ("1.80", "0.45", OLD, 4),
        ("1.57", "0.39", OLD, 4),
        ("2.3377", "0.7795", OLD, 3),
        ("3.42", "57.1 %", OLD, 6),
        ("2.94", "0.65", NEW, 4),
        ("3.33", "0.78", NEW, 4),
        ("5.06", "0.81", NEW, 6),
        ("4.487", "69.9 %", NEW, 6),
        ("1.589", "11.7 %", NEW, 6),
    ],
)
def test_pair_tells_formula_and_number_of_draft_tokens(length: str, rate: str, formula: RateFormula, slots: int) -> None:
    reading = read(length, rate, (None, None, None))
    assert reading.status == "settled"
    assert reading.formulas == (formula,)
    assert reading.shape is not None
    assert reading.shape.num_slots == slots
    assert length_of(reading) == pytest.approx(float(length), abs=0.006)


def test_floor_of_the_old_formula() -> None:
    reading = read("1.00", "0.25")
    assert reading.formulas == (OLD,)
    assert [str(span) for span in reading.spans] == ["0.5.6 to 0.5.10.post1", "0.5.3.post3 to 0.5.5"]
    assert length_of(reading) == 1.0
    assert reading.draft_acceptance == 0.0
    assert reading.from_pair


def test_same_rate_in_two_releases() -> None:
    old, new = read(None, "0.42", version="0.5.9"), read(None, "0.42", version="0.5.12")
    assert length_of(old) == pytest.approx(1.68)
    assert old.draft_acceptance == pytest.approx(0.227, abs=0.001)
    assert old.chain_alpha == pytest.approx(0.42, abs=0.01)
    assert length_of(new) == pytest.approx(2.26)
    assert new.draft_acceptance == pytest.approx(0.42)


def test_rate_alone_without_a_release_is_refused_and_says_what_would_settle_it() -> None:
    reading = read(None, "0.42")
    assert reading.status == "ambiguous"
    assert reading.accept_length is None
    assert {round(c.accept_length.estimate, 2) for c in reading.candidates} == {1.68, 2.26}
    assert reading.settle_by == ("version", "accept_length")


def test_rate_below_the_old_floor_can_only_be_new() -> None:
    reading = read(None, "0.15")
    assert reading.formulas == (NEW,)
    assert length_of(reading) == pytest.approx(1.45)


def test_pair_that_fits_two_formulas_still_has_its_length() -> None:
    reading = read("2.00", "0.50", (None, None, None))
    assert length_of(reading) == 2.0
    assert set(reading.formulas) == {OLD, NEW}
    assert reading.draft_acceptance is None
    assert reading.settle_by == ("version", "draft_tokens")


@pytest.mark.parametrize(("length", "formulas"), [("3.80", {NEW}), ("3.98", {OLD, NEW}), ("4.00", {OLD, NEW})])
def test_with_known_draft_tokens_only_the_ceiling_is_ambiguous(length: str, formulas: set[RateFormula]) -> None:
    rate = f"{(float(length) - 1) / 3:.2f}"
    assert set(read(length, rate).formulas) == formulas


def test_tree_rate_is_over_all_nodes_and_gives_no_chain_alpha() -> None:
    reading = read("3.2", "0.037", (8, 8, 60))
    assert reading.formulas == (NEW,)
    assert reading.chain_alpha is None
    assert reading.draft_acceptance == pytest.approx(2.2 / 59)


def test_real_log_line_with_topk_and_draft_tokens_only() -> None:
    assert read("1.75", "0.11", (None, 4, 8)).formulas == (NEW,)


def test_newer_release_is_read_but_unverified() -> None:
    reading = read("2.26", "0.42", version="0.6.1")
    assert reading.is_trusted
    assert "unverified" in reading.doubt


def test_log_and_reply_disagree_within_one_release() -> None:
    assert length_of(read(None, "0.227", version="0.5.9", surface="per request")) == pytest.approx(1.68, abs=0.01)
    assert length_of(read(None, "0.42", version="0.5.9")) == pytest.approx(1.68)
    assert "per request" in read("2.17", "0.39", version="0.5.9").doubt


@pytest.mark.parametrize(
    ("length", "rate", "version", "true_length"),
    [
        ("3.071", "51.78 %", None, 3.071),
        ("0.45", "15 %", None, 1.45),
        ("0.45", None, "0.8.5", 1.45),
        ("1.45", None, None, 1.45),
        (None, "15 %", None, 1.45),
    ],
)
def test_vllm(length: str | None, rate: str | None, version: str | None, true_length: float) -> None:
    drafts = 4 if length == "3.071" else 3
    reading = read(length, rate, (None, None, drafts), version, "vllm")
    assert length_of(reading) == pytest.approx(true_length, abs=1e-6)


def test_vllm_first_position_only() -> None:
    assert length_of(read("1.21", "1.4 %", (None, None, 15), engine="vllm")) == pytest.approx(1.21)


def test_ngram_on_vllm_counts_only_steps_with_drafts() -> None:
    bound = read("2.40", "60 %", (None, None, 3), engine="vllm", method="ngram")
    assert bound.is_upper_bound
    assert length_of(bound) == pytest.approx(2.4)
    known = read("2.40", "60 %", (None, None, 3), engine="vllm", method="ngram", drafted_share=0.5)
    assert not known.is_upper_bound
    assert length_of(known) == pytest.approx(1.7)


def test_ngram_may_draft_fewer_than_allowed_but_not_more() -> None:
    assert read("1.50", "60 %", (None, None, 3), engine="vllm", method="ngram").is_trusted
    assert read("2.50", "30 %", (None, None, 3), engine="vllm", method="ngram").status == "contradictory"


def test_unknown_engine_alone_is_ambiguous_and_a_pair_tells() -> None:
    assert read(None, "0.42", (3, None, 4), engine="inhouse").status == "ambiguous"
    pair = read("2.26", "0.42", (3, None, 4), engine="inhouse")
    assert pair.formulas == (NEW,)
    assert "not on record" in pair.doubt


def test_nothing_printed() -> None:
    assert read(None, None).status == "nothing printed"


def test_rate_without_the_number_of_drafts() -> None:
    reading = read(None, "15 %", (None, None, None), engine="vllm")
    assert reading.status == "ambiguous"
    assert "draft_tokens" in reading.settle_by


@given(slots=st.integers(2, 16), filled=st.floats(0.0, 0.9), is_new=st.booleans())
def test_what_a_release_prints_is_read_back(slots: int, filled: float, is_new: bool) -> None:
    formula = NEW if is_new else OLD
    shape = DraftShape(num_drafted=slots - 1, num_steps=slots - 1, is_chain=True)
    length = 1.0 + filled * (slots - 1)
    reading = read(f"{length:.2f}", f"{formula.rate(length, shape):.2f}", (slots - 1, 1, slots))
    assert formula in reading.formulas
    assert length_of(reading) == pytest.approx(length, abs=0.0101)


@pytest.mark.parametrize(("version", "is_bound"), [("0.6.3", True), ("0.8.5", True), ("0.9.2", False), ("0.33.0", False)])
def test_a_rate_that_may_count_unkept_drafts_only_bounds_the_length(version: str, is_bound: bool) -> None:
    reading = read(None, "0.642", (None, None, 3), version, engine="vllm")
    assert reading.is_upper_bound is is_bound
    assert reading.accept_length is not None
    assert reading.accept_length.high == pytest.approx(2.926, abs=0.01)
    assert (reading.accept_length.low == 1.0) is is_bound
    # a length that was printed is not in doubt
    assert not read("1.50", "0.50", (None, None, 3), version, engine="vllm").is_upper_bound
