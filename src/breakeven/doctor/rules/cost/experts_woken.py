"""Verification wakes more experts than a plain step.

Detects: rounds that cost too much on a target that is a mixture of experts, where the experts read by all verified tokens explain
at least a quarter of the excess.

Why it hurts: a plain step of one token reads few experts, a round of four tokens nearly four times as many, up to middle batches;
only from large batches on are all of them read anyway. The worst region is small to middle batches.

Evidence: experts and how many a token takes, bytes from the target's headers; the measured cost of a round.

Remedy: fewer drafts at these batches, a chain and no tree, larger batches, expert parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.costs.prior.routing import touched_skewed
from breakeven.doctor.baseline import dear_rounds
from breakeven.doctor.cost_parts import mixture, reads, step_bytes
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

LEAST_SHARE = 0.25


def check(evidence: Evidence) -> Iterator[Told]:
    target = evidence.target
    assert target is not None
    routed, found = mixture(target), reads(target)
    if routed is None or not found.experts:
        return
    for one in dear_rounds(evidence):
        if one.running is None or one.num_drafted is None:
            continue
        verified = one.running * (one.num_drafted + 1)
        ratio = step_bytes(found, routed, verified) / step_bytes(found, routed, one.running)
        share = (ratio - 1) / (one.cost.value - 1) if one.cost.value > 1 else 0.0
        if share < LEAST_SHARE:
            continue
        few, many = (touched_skewed(tokens, routed.top_k, routed.num_experts) for tokens in (one.running, verified))
        yield Fault(
            severity="warning",
            confidence="medium",
            title=f"Verifying {verified:.0f} tokens reads {ratio:.1f} times what a plain step of {one.running:.0f} reads: "
            f"about {100 * min(share, 1):.0f} % of the excess cost at {one.where}",
            evidence=(
                f"{routed.num_experts} experts, {routed.top_k} a token: {few:.0f} read by a plain step, {many:.0f} by a round",
                str(one),
            ),
            remedy="Draft fewer tokens at this load (breakeven schedule), with topk 1.",
            symptoms=both("cost"),
        )
