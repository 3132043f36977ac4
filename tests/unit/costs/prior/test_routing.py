from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.costs.prior.routing import touched_skewed, touched_uniform


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (4, 31), (32, 188), (48, 244), (192, 377), (256, 382)])
def test_experts_touched_by_even_routing(tokens: int, experts: int) -> None:
    assert touched_uniform(tokens, 8, 384) == pytest.approx(experts, abs=0.6)


@given(st.integers(1, 512), st.integers(1, 16), st.integers(16, 512))
def test_skew_touches_fewer_and_never_less_than_one_token_does(tokens: int, top_k: int, num: int) -> None:
    even, skewed = touched_uniform(tokens, top_k, num), touched_skewed(tokens, top_k, num)
    assert top_k * 0.999 <= skewed <= even * 1.001
    assert even <= num * 1.001
