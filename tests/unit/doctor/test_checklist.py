from __future__ import annotations

import pytest

from breakeven.doctor.checklist import CHECKS, static_checks
from breakeven.doctor.registry import RULES


def test_every_line_is_done_by_rules_that_exist() -> None:
    codes = {rule.code for rule in RULES}
    for text, done_by in CHECKS:
        assert done_by, text
        assert set(done_by) <= codes, text


@pytest.mark.parametrize("method", ["eagle3", "ngram", "suffix", "draft_model", "mtp", "anything"])
def test_every_method_has_something_to_look_at(method: str) -> None:
    assert static_checks(method)
    assert ("vocabulary" in " ".join(static_checks(method))) == (method not in ("ngram", "suffix", "mtp"))
