from __future__ import annotations

import pytest

from breakeven.printed.definitions import DEFINITIONS, definitions_for, draft_shape
from breakeven.printed.formulas import DraftShape, RateFormula
from breakeven.versions import Version


@pytest.mark.parametrize(
    ("engine", "version", "formulas", "is_certain"),
    [
        ("sglang", "0.5.2", {None}, True),
        ("sglang", "0.5.3.post1", {None, RateFormula.LENGTH_OVER_STEPS_PLUS_ONE}, False),
        ("sglang", "0.5.5", {RateFormula.LENGTH_OVER_STEPS_PLUS_ONE}, True),
        ("sglang", "0.5.6.post2", {RateFormula.LENGTH_OVER_SLOTS}, True),
        ("sglang", "0.5.10.post1", {RateFormula.LENGTH_OVER_SLOTS}, True),
        ("sglang", "0.5.11", {RateFormula.ACCEPTED_OVER_DRAFTED}, True),
        ("sglang", "0.7.0", {RateFormula.ACCEPTED_OVER_DRAFTED}, False),
        ("vllm", "0.33.0", {RateFormula.ACCEPTED_OVER_DRAFTED}, True),
        ("vllm", "0.34.0", {RateFormula.ACCEPTED_OVER_DRAFTED}, False),
    ],
)
def test_what_a_release_prints(engine: str, version: str, formulas: set[RateFormula | None], is_certain: bool) -> None:
    found = definitions_for(engine, "log", Version.parse(version))
    assert {row.rate for row in found.rows} == formulas
    assert (not found.doubt) == is_certain


def test_spans_of_one_place_do_not_overlap() -> None:
    for row in DEFINITIONS:
        for other in DEFINITIONS:
            if row is not other and (row.engine, row.surface) == (other.engine, other.surface):
                ends = [end for end in (row.span.first, row.span.last) if end is not None]
                assert not any(end in other.span for end in ends), (row.releases, other.releases)


@pytest.mark.parametrize(
    ("engine", "flags", "shape"),
    [
        ("sglang", (3, 1, 4), DraftShape(num_drafted=3, num_steps=3, is_chain=True)),
        ("sglang", (3, 1, 24), DraftShape(num_drafted=3, num_steps=3, is_chain=True)),
        ("sglang", (3, 3, 4), DraftShape(num_drafted=3, num_steps=3, is_chain=False)),
        ("sglang", (8, 8, 60), DraftShape(num_drafted=59, num_steps=8, is_chain=False)),
        ("sglang", (None, None, 4), DraftShape(num_drafted=3)),
        ("sglang", (3, None, None), DraftShape(num_steps=3)),
        ("vllm", (None, None, 3), DraftShape(num_drafted=3, num_steps=3, is_chain=True)),
        ("vllm", (3, 1, 4), DraftShape(num_drafted=3, num_steps=3, is_chain=True)),
        ("someone's", (None, None, 4), DraftShape()),
        ("someone's", (3, None, 4), DraftShape(num_drafted=3, num_steps=3)),
    ],
)
def test_draft_tokens_count_the_root_in_one_engine_and_not_in_the_other(
    engine: str, flags: tuple[int | None, int | None, int | None], shape: DraftShape
) -> None:
    steps, topk, draft_tokens = flags
    assert draft_shape(engine, steps=steps, topk=topk, draft_tokens=draft_tokens) == shape
