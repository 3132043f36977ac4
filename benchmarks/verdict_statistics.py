"""How often verdicts are right: simulated plans with known truth and realistic noise, judged by the code that judges real runs.

    python benchmarks/verdict_statistics.py [--simulations 2000]

Prints Markdown tables and exits with 1 where a floor is missed. Noise of a trial's log throughput is the sum of
  launch   a speed of its own for every launch, independent from launch to launch and arm to arm
  drift    AR(1) over the trials of a launch
  machine  AR(1) from launch to launch, shared by both arms; the order within a block alternates (ABBA)
  outliers trials that are slow altogether
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from breakeven.experiment.comparing import log_ratio_of
from breakeven.stats.decision import decide
from breakeven.stats.intervals import block_interval
from breakeven.stats.spending import SMALL_SAMPLE_CORRECTION, nominal_alpha

Array = npt.NDArray[np.float64]
THRESHOLD = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    name: str
    launch_sd: float = 0.03
    drift_sd: float = 0.01
    drift_correlation: float = 0.6
    machine_sd: float = 0.0
    machine_correlation: float = 0.9
    outlier_probability: float = 0.02
    outlier_slowdown: float = 1.3


USUAL = Noise(name="usual: launch 3 %, drift 1 %, outliers 2 % at 1.3x")
NOISES = (
    replace(USUAL, name="launch 3 % alone", drift_sd=0.0, outlier_probability=0.0),
    USUAL,
    Noise(name="drifting: launch 3 %, drift 4 % (AR 0.9), machine 10 %", drift_sd=0.04, drift_correlation=0.9, machine_sd=0.10),
    Noise(
        name="rough: launch 10 %, drift 5 %, outliers 5 % at 1.5x",
        launch_sd=0.10,
        drift_sd=0.05,
        outlier_probability=0.05,
        outlier_slowdown=1.5,
    ),
    Noise(name="heavy outliers: launch 3 %, outliers 10 % at 2x", outlier_probability=0.10, outlier_slowdown=2.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    min_launches: int
    max_launches: int
    repeats: int = 3

    @property
    def name(self) -> str:
        looks = f"{self.min_launches}" if self.min_launches == self.max_launches else f"{self.min_launches} to {self.max_launches}"
        return f"{looks} launches x {self.repeats}"


def pairs_of_trials(noise: Noise, plan: Plan, ratio: float, num_plans: int, rng: np.random.Generator) -> Array:
    """Log ratios of paired trials, shape [plans, blocks, repeats]."""
    shape = num_plans, plan.max_launches, plan.repeats
    machine = noise.machine_sd * _ar1(rng, (num_plans, 2 * plan.max_launches), noise.machine_correlation)
    first, second = machine[:, 0::2], machine[:, 1::2]
    swapped = np.arange(plan.max_launches) % 2 == 1
    arms = []
    for shared in (np.where(swapped, second, first), np.where(swapped, first, second)):
        launch = noise.launch_sd * rng.standard_normal(shape[:2]) + shared
        drift = noise.drift_sd * _ar1(rng, shape, noise.drift_correlation)
        slow = math.log(noise.outlier_slowdown) * (rng.random(shape) < noise.outlier_probability)
        arms.append(launch[..., None] + drift - slow)
    return math.log(ratio) + arms[0] - arms[1]


def _ar1(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> Array:
    values = rng.standard_normal(shape)
    for place in range(1, shape[-1]):
        values[..., place] = correlation * values[..., place - 1] + math.sqrt(1 - correlation**2) * values[..., place]
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of all plans: how they ended, how many intervals held the truth when they ended, and at every look; launches used."""

    pays: float
    slower: float
    no_difference: float
    covered: float
    covered_always: float
    launches: float


Judge = Callable[[Sequence[Sequence[float]], Plan], tuple[str, float, float]]


def as_shipped(blocks: Sequence[Sequence[float]], plan: Plan) -> tuple[str, float, float]:
    """Outcome and interval of the log ratio, by the product's own code."""
    estimate = log_ratio_of(blocks, plan.min_launches, plan.max_launches)
    return decide(estimate, THRESHOLD), estimate.low, estimate.high


def pooling_trials(blocks: Sequence[Sequence[float]], plan: Plan) -> tuple[str, float, float]:
    """The usual mistake: every trial counts as an independent draw."""
    alpha = nominal_alpha(len(blocks), plan.min_launches, plan.max_launches)
    estimate = block_interval([[value] for block in blocks for value in block], assumed_sd=0.1, alpha=alpha)
    return decide(estimate, THRESHOLD), estimate.low, estimate.high


def ignoring_looks(blocks: Sequence[Sequence[float]], _plan: Plan) -> tuple[str, float, float]:
    """The other usual mistake: a 95 % interval at every look."""
    estimate = log_ratio_of(blocks, len(blocks), len(blocks))
    return decide(estimate, THRESHOLD), estimate.low, estimate.high


def simulate(noise: Noise, plan: Plan, ratio: float, num_plans: int, *, seed: int = 0, judge: Judge = as_shipped) -> Shares:
    """Run `num_plans` plans to their end: after each block from the first look on, stop where the outcome is decided."""
    truth = math.log(ratio)
    ends: list[str] = []
    covered = covered_always = launches = 0
    for trials in pairs_of_trials(noise, plan, ratio, num_plans, np.random.default_rng(seed)).tolist():
        stopped, always = False, True
        for num_blocks in range(plan.min_launches, plan.max_launches + 1):
            outcome, low, high = judge(trials[:num_blocks], plan)
            inside = low <= truth <= high
            always = always and inside
            if not stopped and (outcome != "undecided" or num_blocks == plan.max_launches):
                stopped = True
                ends.append(outcome)
                covered += inside
                launches += num_blocks
        covered_always += always
    return Shares(
        pays=ends.count("pays") / num_plans,
        slower=ends.count("slower") / num_plans,
        no_difference=ends.count("no useful difference") / num_plans,
        covered=covered / num_plans,
        covered_always=covered_always / num_plans,
        launches=launches / num_plans,
    )


class Report:
    def __init__(self) -> None:
        self.missed: list[str] = []

    def title(self, text: str, *columns: str) -> None:
        print(f"\n### {text}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)

    def row(self, *cells: str, ok: bool | None = None) -> None:
        mark = "" if ok is None else " | ok" if ok else " | MISSED"
        print(f"| {' | '.join(cells)}{mark} |", flush=True)
        if ok is False:
            self.missed.append(" / ".join(cells))


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=2000)
    num_plans = parser.parse_args().simulations
    began_s = time.perf_counter()
    report = Report()
    fixed = [Plan(min_launches=n, max_launches=n) for n in (3, 5, 8)]
    sequential = [Plan(min_launches=3, max_launches=8), Plan(min_launches=2, max_launches=6), Plan(min_launches=3, max_launches=12)]

    report.title(
        "A/A plans: no difference, threshold 3 %", "noise", "plan", "pays", "slower", "no useful difference", "at most 5 %"
    )
    for noise in NOISES:
        for plan in (fixed[0], fixed[2], sequential[0]):
            shares = simulate(noise, plan, 1.0, num_plans)
            report.row(
                noise.name, plan.name, percent(shares.pays), percent(shares.slower), percent(shares.no_difference),
                ok=shares.pays + shares.slower <= 0.05,
            )  # fmt: skip

    report.title("Fixed designs: 95 % intervals", "noise", "plan", "covers 1.00", "covers 1.10", "93 to 97 %")
    for noise in NOISES:
        for plan in fixed:
            shares = [simulate(noise, plan, ratio, num_plans, seed=seed) for seed, ratio in ((1, 1.0), (2, 1.10))]
            # trials that take twice as long at random are kinder to a t interval than it knows: more than 97 % is no fault there
            most = 1.0 if noise.outlier_slowdown >= 2 else 0.97
            report.row(
                noise.name, plan.name, *(percent(share.covered) for share in shares),
                ok=all(0.93 <= share.covered <= most for share in shares),
            )  # fmt: skip

    report.title(
        "Sequential designs: the interval at the look that ended the plan",
        "noise", "plan", "ratio", "covers", "covers at every look", "pays", "launches used", "at least 94 %",
    )  # fmt: skip
    for noise in NOISES:
        for plan in sequential if noise is USUAL else sequential[:1]:
            for ratio in (1.0, 1.03, 1.10, 1.50):
                share = simulate(noise, plan, ratio, num_plans, seed=3)
                report.row(
                    noise.name, plan.name, f"{ratio:.2f}", percent(share.covered), percent(share.covered_always),
                    percent(share.pays), f"{share.launches:.1f}", ok=share.covered >= 0.94,
                )  # fmt: skip

    report.title(
        "Deciding: a true ratio of 1.10 within 8 launches an arm", "noise", "plan", "pays", "launches used", "at least 90 %"
    )
    single_trials = replace(sequential[0], repeats=1)
    for noise, plan in (*((noise, sequential[0]) for noise in NOISES), (USUAL, single_trials)):
        share = simulate(noise, plan, 1.10, num_plans, seed=4)
        floor = noise in NOISES[:2] and plan is not single_trials
        report.row(noise.name, plan.name, percent(share.pays), f"{share.launches:.1f}", ok=share.pays >= 0.9 if floor else None)

    report.title(
        "One launch an arm: the interval assumes a launch s.d. of 10 %", "launch s.d.", "covers 1.00", "A/A pays or slower"
    )
    for launch_sd in (0.03, 0.10, 0.15):
        plan = Plan(min_launches=1, max_launches=1)
        share = simulate(replace(USUAL, launch_sd=launch_sd), plan, 1.0, num_plans, seed=5)
        report.row(f"{100 * launch_sd:.0f} %", percent(share.covered), percent(share.pays + share.slower))

    report.title(
        f"What the usual mistakes would do, same noise ({USUAL.name})", "mistake", "plan", "covers 1.00", "covers at every look"
    )
    for name, judge, plan in (
        ("none", as_shipped, sequential[0]),
        ("trials as independent draws", pooling_trials, fixed[0]),
        ("trials as independent draws", pooling_trials, sequential[0]),
        ("95 % at every look", ignoring_looks, sequential[0]),
    ):
        share = simulate(USUAL, plan, 1.0, num_plans, seed=6, judge=judge)
        report.row(name, plan.name, percent(share.covered), percent(share.covered_always))

    print(f"\n{num_plans} plans a row, {time.perf_counter() - began_s:.0f} s; levels divided by {SMALL_SAMPLE_CORRECTION}.")
    for missed in report.missed:
        print(f"MISSED: {missed}")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
