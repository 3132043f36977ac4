"""How many experts a step reads: the reason why verification of a mixture of experts is dear at small and middle batches.

Tokens route to `top_k` of E experts each. If they did so independently and evenly, t tokens would touch

    N(t) = E (1 - (1 - top_k / E)^t)

which is an upper bound: popular experts are shared. With popularity falling as rank^-SKEW, expert i is in a token's choice with
probability q_i (raised together until they add up to top_k, none above 1), and N(t) = sum over i of 1 - (1 - q_i)^t.
"""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["SKEW", "touched_skewed", "touched_uniform"]

# popularity falls with this power of the rank; what the skewed rows of the kernel tables amount to in bytes read
SKEW = 0.7


def touched_uniform(num_tokens: float, top_k: int, num_experts: int) -> float:
    """Experts read by a step of `num_tokens` under even, independent routing."""
    return num_experts * -math.expm1(num_tokens * math.log1p(-min(top_k / num_experts, 1.0 - 1e-12)))


def touched_skewed(num_tokens: float, top_k: int, num_experts: int) -> float:
    """The same where popular experts take more of the tokens."""
    return sum(-math.expm1(num_tokens * math.log1p(-chance)) for chance in _chances(top_k, num_experts))


@lru_cache(maxsize=32)
def _chances(top_k: int, num_experts: int) -> tuple[float, ...]:
    weights = [rank**-SKEW for rank in range(1, num_experts + 1)]
    low, high = 0.0, float(num_experts * num_experts)
    for _ in range(80):
        scale = (low + high) / 2
        low, high = (scale, high) if sum(min(scale * weight, 1.0) for weight in weights) < top_k else (low, scale)
    return tuple(min(high * weight, 1.0 - 1e-9) for weight in weights)
