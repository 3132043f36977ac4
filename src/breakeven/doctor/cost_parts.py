"""What the bytes of a model say about the cost of a round: experts that more tokens wake, and the drafter's own weights.

Decoding reads every dense weight once a step and of a mixture's experts those that its tokens are routed to, so while it is bound
by memory a step costs as what it reads:

    plain step of B tokens     dense + experts * N(B) / E
    verification of B (k + 1)  dense + experts * N(B (k + 1)) / E
    k draft steps              k * drafter

with N(t) the experts that t tokens touch. It is an estimate from shapes; attention, collectives and the host come on top of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.checkpoints.folder import ModelFolder
from breakeven.costs.prior.routing import touched_skewed
from breakeven.doctor.drafter import Drafter, language_config, whole

__all__ = ["Mixture", "Reads", "mixture", "num_bytes", "reads", "step_bytes"]

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    num_experts: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """Bytes of the target: read by every step, and of all experts together."""

    dense: float
    experts: float


def mixture(target: ModelFolder) -> Mixture | None:
    """None for a dense target, or one that does not say how it routes."""
    config = language_config(target)
    experts = next((count for key in _EXPERTS if (count := whole(config.get(key)))), None)
    top_k = next((count for key in _TOP_K if (count := whole(config.get(key)))), None)
    return Mixture(num_experts=experts, top_k=top_k) if experts and top_k and top_k < experts else None


def reads(target: ModelFolder) -> Reads:
    """Embedding rows are looked up one by one and not counted."""
    dense = experts = 0.0
    for name, info in target.tensors.items():
        if ".experts." in name:
            experts += info.end - info.begin
        elif not name.endswith("embed_tokens.weight"):
            dense += info.end - info.begin
    return Reads(dense=dense, experts=experts)


def step_bytes(found: Reads, routed: Mixture | None, num_tokens: float) -> float:
    share = touched_skewed(num_tokens, routed.top_k, routed.num_experts) / routed.num_experts if routed is not None else 1.0
    return found.dense + found.experts * share


def num_bytes(draft: Drafter) -> float:
    """What one draft step reads."""
    return float(
        sum(info.end - info.begin for role, info in draft.by_role.items() if role not in ("embed_tokens.weight", "d2t", "t2d"))
    )
