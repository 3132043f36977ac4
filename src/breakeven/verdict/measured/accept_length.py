"""Accept lengths as counted by the servers: counts are put together within a launch, intervals go by launch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from breakeven.acceptance import Acceptance, AcceptanceSource
from breakeven.experiment.scheduled_acceptance import tells_drafts
from breakeven.experiment.summary import RunSummary
from breakeven.stats.intervals import Estimate, block_interval
from breakeven.verdict.result import AcceptanceSummary, Interval

__all__ = ["SOURCES", "AcceptLength", "accept_length", "acceptance_summary"]

SOURCES: dict[AcceptanceSource, str] = {
    "counters": "counters of the server, difference over the window",
    "requests": "what the server reported with every answer that ended",
    "log": "averages in the server's log, rounded to two digits",
    "gauge": "a gauge of the server's last interval, looked at a few times",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLength:
    """All counts of an arm at a load point together, and its accept length over launches.

    tells_drafts: whether it is known how many drafts its rounds had, and which of its steps had any.
    most: tokens of a round whose drafts are all accepted.
    """

    counts: Acceptance
    estimate: Estimate
    num_samples: int
    most: float
    tells_drafts: bool = True

    @property
    def value(self) -> float:
        return self.counts.accept_length

    @property
    def interval(self) -> Interval:
        """Open where there was a single window: it shows no spread. Where nothing was accepted launches do not differ, and the
        upper end is what so few rounds leave open: with none in n, at most 3 / n at 95 % (Hanley and Lippman-Hand 1983)."""
        if self.num_samples < 2:
            return Interval(estimate=self.value)
        high = max(self.estimate.high, self.value)
        counts = self.counts
        if counts.num_rounds and counts.num_drafted and not counts.num_accepted:
            # every draft of such a round may have been accepted
            drafts = counts.num_drafted / counts.num_rounds
            high = max(high, 1.0 + drafts * min(1.0, 3 / counts.num_steps))
        # t intervals of two or three launches are wide and know no bounds; servers that draft more than the plan says exceed it
        high = max(self.value, min(high, self.most))
        return Interval(estimate=self.value, low=max(1.0, min(self.estimate.low, self.value)), high=high)


def accept_length(run: RunSummary, arm: str, load: str) -> AcceptLength | None:
    """None where the server counts no acceptance.

    What is accepted depends on drafter and prompts, not on a launch's speed, so windows of one launch may stand in for launches
    where there is only one.
    """
    launches = run.acceptance_by_launch(arm, load)
    if not launches:
        return None
    if len(launches) > 1:
        samples = [sum(counts[1:], start=counts[0]) for counts in launches]
    else:
        (samples,) = launches
    speculation = run.arm(arm).speculation
    return AcceptLength(
        counts=sum(samples[1:], start=samples[0]),
        estimate=block_interval([[sample.accept_length] for sample in samples], assumed_sd=0.0),
        num_samples=len(samples),
        most=math.inf if speculation is None else 1.0 + (speculation.num_steps or speculation.num_draft_tokens),
        tells_drafts=tells_drafts(run.arm(arm), run.load(load)),
    )


def acceptance_summary(length: AcceptLength) -> AcceptanceSummary:
    counts = length.counts
    return AcceptanceSummary(
        accept_length=length.interval,
        per_round_length=counts.per_round_length if counts.num_rounds and length.tells_drafts else None,
        draft_acceptance=counts.draft_acceptance if counts.num_drafted else None,
        drafted_share=counts.drafted_share if length.tells_drafts else None,
        joint=counts.joint,
        conditional=tuple(None if math.isnan(share) else share for share in counts.conditional),
        source=SOURCES[counts.source],
        exact=counts.exact_steps,
    )
