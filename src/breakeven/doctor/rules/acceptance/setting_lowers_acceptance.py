"""Two servers that differ in one or two settings accept differently.

Detects: two logs, or two starts of a server in one log, whose accept lengths differ beyond noise and whose banners differ in at
most two settings that can matter (attention backends have a rule of their own).

Why it hurts: what was launched differently in the worse one is what lowers acceptance, unless the prompts changed too.

Evidence: accept lengths of both; the settings that differ.

Remedy: the setting of the better one.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import lower_of
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.readers.findings.curve import FLOOR_ACCEPTED

CODE = "accept-lengths-differ"
MOST_SETTINGS = 2
# How much is drafted and admitted changes the figures without being a fault.
_NO_FAULT = (
    "attention_backend",
    "max_running_requests",
    "max_num_seqs",
    "num_speculative_tokens",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "speculative_eagle_topk",
    "enable_hierarchical_cache",
    "cuda_graph_max_bs",
    "tp_size",
    "dp_size",
)


def check(evidence: Evidence) -> Iterator[Told]:
    readings = evidence.readings
    assert readings is not None
    if evidence.has_collapse:
        return
    for comparison in readings.comparisons:
        differ = next((finding for finding in comparison.findings if finding.code == CODE), None)
        lower = lower_of(comparison)
        if differ is None or lower is None or not 0 < len(comparison.settings) <= MOST_SETTINGS:
            continue
        # one side that does not say is no difference
        told = [text for text in comparison.settings if "not said" not in text]
        if len(told) != len(comparison.settings) or any(name in text for text in told for name in _NO_FAULT):
            continue
        overall = next((one.accept_lengths for one in comparison.differences if one.accept_lengths is not None), None)
        at_floor = overall is not None and min(overall) < 1.0 + FLOOR_ACCEPTED
        yield Fault(
            severity="error" if at_floor else "warning",
            confidence="high" if at_floor and len(told) == 1 else "medium",
            title=f"{lower} accepts less, and was launched differently: {'; '.join(told)}",
            evidence=differ.evidence,
            remedy=f"Launch as the better of the two: {'; '.join(told)} ({comparison.first} / {comparison.second}).",
            symptoms=both("engines-differ"),
            also=("floor", "all-positions-lower"),
        )
