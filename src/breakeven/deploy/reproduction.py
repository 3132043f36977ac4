"""Whether a fresh launch of an arm is as fast as its launches in the run were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from breakeven.experiment.summary import RunSummary, speed_measure
from breakeven.experiment.trial import Trial
from breakeven.stats.further import further_block
from breakeven.stats.intervals import ASSUMED_LAUNCH_SD, block_interval
from breakeven.units import format_rate, plural
from breakeven.verdict.measured.wording import percent

__all__ = ["Reproduction", "reproduction"]

# Within half and one and a half times as fast almost anything falls: such a spread tests nothing.
MAX_TELLING_LOG_WIDTH = math.log(1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """`speed` is that of this launch, tokens/s; `run_speed` the mean of the run's launches with its interval.

    `spread_low` and `spread_high`: where one further launch should fall. None where the run or this launch has no figure.
    """

    outcome: Literal["reproduces", "slower", "faster", "cannot be told"]
    text: str
    what: str
    speed: float | None = None
    run_speed: float | None = None
    run_low: float | None = None
    run_high: float | None = None
    spread_low: float | None = None
    spread_high: float | None = None
    num_launches: int = 0


def reproduction(run: RunSummary, trial: Trial) -> Reproduction:
    """`trial`, a window of a fresh launch, against the run's launches of the same arm at the same load point."""
    arm, load = trial.arm, run.load(trial.load.label)
    objective = run.record.objective
    measure = speed_measure(load, objective)
    what = "tokens/s of the whole server" if load.rate_per_s is None else "tokens/s of whole requests"
    if objective.name != "throughput":
        what = f"tokens/s by the plan's objective, {objective.text}"
    if trial.voids:
        reasons = "; ".join(f"{void.code}: {void.detail}" for void in trial.voids)
        return Reproduction(outcome="cannot be told", what=what, text=f"The window does not count ({reasons})")
    log_speed = measure(trial)
    if not math.isfinite(log_speed):
        return Reproduction(outcome="cannot be told", what=what, text="No request was completed in the window; try a longer one")
    speed = math.exp(log_speed)
    estimate = block_interval(run.by_launch(arm, load.label, measure), assumed_sd=ASSUMED_LAUNCH_SD)
    if not estimate.usable:
        text = f"{format_rate(speed)} at {load.label}. The run has no figure of {arm} there to hold it against"
        return Reproduction(outcome="cannot be told", what=what, text=text, speed=speed)
    low, high = further_block(estimate)
    # a very steady machine has a spread narrower than any difference that matters
    slack = math.log1p(run.record.threshold)
    outcome: Literal["reproduces", "slower", "faster", "cannot be told"]
    if low <= log_speed <= high:
        outcome = "reproduces" if (high - low) / 2 <= MAX_TELLING_LOG_WIDTH else "cannot be told"
        said = _SAID[outcome]
    elif abs(log_speed - estimate.value) <= slack:
        outcome = "reproduces"
        said = (
            f"Reproduces: outside the spread of launches, by less than the {percent(run.record.threshold)} that matter to the plan"
        )
    else:
        outcome = "slower" if log_speed < low else "faster"
        said = _SAID[outcome]
    launches = plural(estimate.num_blocks, "launch")
    mean = math.exp(estimate.value)
    seen = (
        f"{format_rate(speed)} at {load.label}, one launch; the run's {launches} gave {format_rate(mean)} on average "
        f"({format_rate(math.exp(estimate.low))} to {format_rate(math.exp(estimate.high))}), and one further launch was to be "
        f"expected within {format_rate(math.exp(low))} to {format_rate(math.exp(high))}"
    )
    if estimate.assumed:
        seen += f", taking launches to differ by {percent(ASSUMED_LAUNCH_SD)} because one cannot show how they do"
    if outcome in ("slower", "faster"):
        seen += ". See what else ran on the machine, then and now, and what the warnings say has changed; then serve it again"
    return Reproduction(
        outcome=outcome,
        text=f"{said}: {seen}",
        what=what,
        speed=speed,
        run_speed=mean,
        run_low=math.exp(estimate.low),
        run_high=math.exp(estimate.high),
        spread_low=math.exp(low),
        spread_high=math.exp(high),
        num_launches=estimate.num_blocks,
    )


_SAID = {
    "reproduces": "Reproduces: inside the spread of launches",
    "slower": "Does not reproduce: slower than the spread of launches allows",
    "faster": "Does not reproduce: faster than the spread of launches allows",
    "cannot be told": "Inside the spread of launches, which is too wide to tell anything (more launches in the plan narrow it)",
}
