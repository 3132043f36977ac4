"""What the equation says an arm should have done, from its accept length and a cost ratio that others measured; and the gap."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from breakeven.costs.cost_ratio import pool
from breakeven.costs.identity import request_speedup
from breakeven.engines.base import Arm
from breakeven.experiment.admission import mean_running
from breakeven.experiment.comparing import PAIR_ASSUMED_SD, Compared
from breakeven.experiment.cost_ratios import FULLY_DRAFTED, Costs
from breakeven.experiment.scheduled_acceptance import off_schedule
from breakeven.experiment.summary import RunSummary, log_throughput
from breakeven.experiment.trial import Trial
from breakeven.loadgen.measures import prefill_share, ttfts
from breakeven.stats.intervals import Estimate, block_interval
from breakeven.units import plural
from breakeven.verdict.measured.wording import percent

__all__ = ["GAP_ALPHA", "Prediction", "mean_prefill_share", "predict"]

# level of the test for a gap (there is one for every arm and load point), and the relative gap below which it does not matter
GAP_ALPHA = 0.01
GAP_TOLERANCE = 0.03
# differences between arm and baseline, or between real and forced rounds, that are named as likely causes of a gap
_NOTABLE = 0.03
_NOTABLE_TTFT = 0.10
_NOTABLE_LENGTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """`log_speedup` is what accept length, c and prefill's share give; `log_gap` measured minus predicted, block by block.

    `sources` are the arms that c came from, `causes` what could explain a gap, with figures. A prediction that was not possible
    has None for both and says `why_none`.
    """

    log_speedup: Estimate | None = None
    log_gap: Estimate | None = None
    sources: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    why_none: str = ""

    @property
    def agrees(self) -> bool:
        """No gap beyond noise, or none that matters."""
        gap = self.log_gap
        return gap is None or not gap.usable or gap.low * gap.high <= 0 or abs(gap.value) < GAP_TOLERANCE


def predict(run: RunSummary, costs: Costs, compared: Compared) -> Prediction:
    """The equation applied to one real arm at one load point."""
    arm, load = run.arm(compared.arm), compared.load
    if arm.speculation is None:
        return Prediction()
    if run.load(load).concurrency is None:
        return Prediction(
            why_none="in an open loop a faster server runs fewer requests at once, and the equation holds for equal ones"
        )
    if arm.speculation.drafts_at(run.load(load).concurrency or 0) == 0:
        return Prediction(why_none="its schedule drafts nothing at this load")
    counted = [counts for launch in run.acceptance_by_launch(arm.name, load) for counts in launch]
    if not counted:
        return Prediction(why_none="its server counts no accepted drafts, so the equation has nothing to start from")
    if reason := off_schedule(sum(counted[1:], start=counted[0]), arm, run.load(load)):
        return Prediction(why_none=f"{reason}, so no single cost ratio applies")
    if (drafted := statistics.fmean(counts.drafted_share for counts in counted)) < FULLY_DRAFTED:
        reason = f"it drafts at only {percent(drafted)} of its steps, so no single cost ratio applies; see its decode ratio instead"
        return Prediction(why_none=reason)
    cost = costs.for_arm(arm, run.load(load))
    if cost is None or set(cost.arms) == {arm.name}:
        drafts = plural(arm.speculation.drafts_at(run.load(load).concurrency or 0), "draft")
        return Prediction(why_none=f"no other arm with {drafts} a round measured what a round costs here; add a forced one")
    others = [name for name in cost.arms if name != arm.name]
    if cost.disagreeing:  # c depends on what is accepted: take it where about as much was
        others = [min(others, key=lambda name: abs(_mean_length(run, name, load) - _mean_length(run, arm.name, load)))]
    cost = pool({name: costs.own[name, load] for name in others}, assumed_sd=PAIR_ASSUMED_SD)
    predicted, gaps = [], []
    measured = run.paired(arm.name, run.record.baseline, load, log_throughput)
    for block in sorted(measured.keys() & cost.blocks.keys()):
        counts = run.acceptance_of_block(arm.name, load, block)
        share = mean_prefill_share(run, load, block)
        if counts is not None and share is not None:
            log_cost = statistics.median(cost.blocks[block])
            speedup = math.log(request_speedup(counts.accept_length, math.exp(log_cost), share))
            predicted.append([speedup])
            gaps.append([value - speedup for value in measured[block]])
    if not predicted:
        return Prediction(why_none="no block holds trials that count of this arm, the baseline and an arm that measured the cost")
    return Prediction(
        log_speedup=block_interval(predicted, assumed_sd=PAIR_ASSUMED_SD),
        log_gap=block_interval(gaps, assumed_sd=PAIR_ASSUMED_SD, alpha=GAP_ALPHA),
        sources=tuple(cost.arms),
        causes=_causes(run, costs, arm, load, cost.log.value, tuple(cost.arms)),
    )


def _mean_length(run: RunSummary, arm: str, load: str) -> float:
    counts = [counts.accept_length for launch in run.acceptance_by_launch(arm, load) for counts in launch]
    return statistics.fmean(counts) if counts else 1.0


def mean_prefill_share(run: RunSummary, load: str, block: int | None = None) -> float | None:
    """Prefill's share of the baseline's request time, over all blocks or in one."""
    trials = [trial for trial in run.trials(run.record.baseline, load) if block is None or trial.block == block]
    shares = [share for trial in trials if math.isfinite(share := run.figure(prefill_share, trial))]
    return statistics.fmean(shares) if shares else None


def _causes(run: RunSummary, costs: Costs, arm: Arm, load: str, log_cost: float, sources: tuple[str, ...]) -> tuple[str, ...]:
    """Everything measured that the equation leaves out and that differs, most direct first."""
    causes = []
    own = costs.own.get((arm.name, load))
    if own:
        excess = math.expm1(statistics.fmean(statistics.median(values) for values in own.values()) - log_cost)
        if abs(excess) > _NOTABLE:
            causes.append(
                f"its own rounds take {abs(100 * excess):.0f} % {'longer' if excess > 0 else 'less time'} than those of"
                f" {' and '.join(sources)}: a round's cost depends here on more than batch and drafts"
            )
    mine, theirs = list(run.trials(arm.name, load)), list(run.trials(run.record.baseline, load))
    first, plain_first = _median_ttft(mine), _median_ttft(theirs)
    if first and plain_first and abs(first / plain_first - 1) > _NOTABLE_TTFT:
        causes.append(
            f"first tokens come after {1000 * first:.0f} ms instead of {1000 * plain_first:.0f} ms (the drafter's own prefill, or"
            " rounds that prefills wait for)"
        )
    running, plain_running = mean_running(mine), mean_running(theirs)
    if running and plain_running and abs(running / plain_running - 1) > _NOTABLE:
        causes.append(f"{running:.2f} requests were running on average against {plain_running:.2f}")
    length, plain_length = _mean_output(mine), _mean_output(theirs)
    if length and plain_length and abs(length / plain_length - 1) > _NOTABLE_LENGTH:
        causes.append(f"answers were {length:.0f} tokens long on average against {plain_length:.0f}, so prefill weighs differently")
    return tuple(causes)


def _median_ttft(trials: list[Trial]) -> float | None:
    times = [time_s for trial in trials for time_s in ttfts(trial)]
    return statistics.median(times) if times else None


def _mean_output(trials: list[Trial]) -> float | None:
    lengths = [
        sample.output_tokens
        for trial in trials
        for sample in trial.samples
        if sample.finish_reason is not None and sample.error is None and not sample.staggered
    ]
    return statistics.fmean(lengths) if lengths else None
