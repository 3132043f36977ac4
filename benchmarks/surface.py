"""What choosing points of the break-even curve saves, and whether its intervals hold: simulated deployments with known truth.

    python benchmarks/surface.py [--runs 40]

Every deployment is measured twice by the product's own runner on the fake engine: as `curve:` does it, and as a full grid, where
each number of drafts is measured at both accepted lengths until the same precision is reached. Prints a Markdown table and exits
with 1 where a floor is missed: at most a third of the grid's time (a half where there is a cliff to find), and 95 % intervals that
hold the truth at 93 % of measured points and of those read off, or more. A staircase, which the readings between points do not
allow for, is shown without floors.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from breakeven.costs.measured_surface import MeasuredSurface, half_width
from breakeven.costs.surface import UnknownCost
from breakeven.engines.base import Arm
from breakeven.experiment.cost_ratios import measure_costs
from breakeven.experiment.curve_plan import curve_arm
from breakeven.experiment.curving import surface_of
from breakeven.experiment.live import LiveArm, SimulatedArm
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.runner import carry_out
from breakeven.experiment.stopping import still_wanted
from breakeven.experiment.store import RunStore
from breakeven.experiment.summary import RunSummary

BATCHES = (1, 4, 16, 64)
DRAFTS = (1, 2, 3, 4, 5, 6, 7)
PRECISION = 0.05
LEAST_HELD = 0.93
# a production server: a minute to load, half a minute a window; its steps are long so that there are few answers to simulate
STEP_S = 0.2
LAUNCH_S, WARMUP_S, WINDOW_S = 60.0, 5.0, 30.0


def straight(batch: int, k: int) -> float:
    """A draft step and a row to verify for every draft."""
    return 1.0 + (0.08 + 0.03 * math.log2(batch)) * k


def cliff(batch: int, k: int) -> float:
    """The same until batch x (k + 1) tokens no longer fit a recorded graph of 256."""
    return straight(batch, k) * (3.0 if batch * (k + 1) > 256 else 1.0)


def bending(batch: int, k: int) -> float:
    """Experts woken by more tokens: steep at first, then flat."""
    return 1.0 + 0.06 * k + 0.9 * (1.0 - math.exp(-0.25 * k)) * math.exp(-((math.log2(batch) - 3.0) ** 2) / 8.0)


def early_cliff(batch: int, k: int) -> float:
    """A cliff by half at 64 tokens."""
    return straight(batch, k) * (1.5 if batch * (k + 1) > 64 else 1.0)


def one_batch(batch: int, k: int) -> float:
    """Experts woken at once, and at batch 16 only."""
    return straight(batch, k) + (0.5 * (1.0 - math.exp(-0.7 * k)) if batch == 16 else 0.0)


def small_step(batch: int, k: int) -> float:
    """A step of a tenth above 4 drafts, as hard to see as can be."""
    return straight(batch, k) + (0.1 * straight(batch, 4) if k > 4 else 0.0)


def steepening(batch: int, k: int) -> float:
    """Arithmetic begins to cost more than memory at 96 tokens."""
    return 1.0 + 0.07 * k + max(0.0, batch * (k + 1) - 96) / 150


def staircase(batch: int, k: int) -> float:
    """Tokens padded to the next power of two: a step at every doubling."""
    return 1.0 + 0.05 * k + 0.002 * 2.0 ** math.ceil(math.log2(batch * (k + 1)))


# what each may take of the grid's time; None: nothing is asked, because no such curve is allowed for
DEPLOYMENTS: dict[Callable[[int, int], float], float | None] = {
    straight: 1 / 3,
    cliff: 1 / 2,
    bending: 1 / 3,
    early_cliff: 1 / 2,
    one_batch: 1 / 3,
    small_step: 1 / 3,
    steepening: 1 / 3,
    staircase: None,
}


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    surface: MeasuredSurface


def plan_of(truth: Callable[[int, int], float], launch_sd: float, seed: int) -> Plan:
    noise = {"launch_sd": launch_sd, "drift_sd": 0.005, "drift_correlation": 0.5, "step_s": STEP_S}
    simulation = {k: {"cost_ratio": {b: truth(b, k) for b in BATCHES}, **noise} for k in DRAFTS}
    return Plan.model_validate(
        {
            "name": "surface",
            "engine": "fake",
            "seed": seed,
            "launches": {"min": 3, "max": 12},
            "max_running_requests": max(BATCHES),
            "workload": {"max_tokens": 128, "fixed_length": True},
            "load": [{"concurrency": batch} for batch in BATCHES],
            "trial": {"warmup_s": WARMUP_S, "window_s": WINDOW_S},
            "arms": {"plain": {"simulation": noise}},
            "curve": {"num_draft_tokens": list(DRAFTS), "precision": PRECISION, "simulation": simulation},
        }
    )


def full_grid(record: RunRecord) -> Iterable[tuple[str, str]]:
    """Every point at both accepted lengths, until its own interval is narrow enough."""
    run = RunSummary(record)
    costs = measure_costs(run)
    surface = surface_of(run, costs, "eagle3")
    for load in record.loads:
        assert load.concurrency is not None
        for k in DRAFTS:
            known = surface.measured.get((load.concurrency, k))
            for low in (False, True):
                arm = curve_arm(k, low=low)
                blocks = len(costs.own.get((arm, load.label), ()))
                if blocks < record.min_launches or (
                    known is not None and half_width(known) > PRECISION and run.num_launches(arm) < record.max_launches
                ):
                    yield arm, load.label


def measure(plan: Plan, choose: Callable[[RunRecord], Iterable[tuple[str, str]]]) -> Measured:
    def make_live(arm: Arm) -> LiveArm:
        return SimulatedArm(arm, seed=plan.seed, window_s=plan.window_s)

    with tempfile.TemporaryDirectory() as folder, RunStore(Path(folder) / "run", plan) as store:
        store.begin({})
        carry_out(plan, store, make_live, choose, lambda _: None, side_by_side=False)
        record = store.record()
    launches = len({trial.launch for trial in record.trials})
    run = RunSummary(record)
    return Measured(
        seconds=launches * LAUNCH_S + len(record.trials) * (WARMUP_S + WINDOW_S),
        surface=surface_of(run, measure_costs(run), "eagle3"),
    )


def points(surface: MeasuredSurface, truth: Callable[[int, int], float]) -> list[tuple[bool, float, bool]]:
    """Of every point of the grid: does the interval hold the truth, its relative half width, and was it measured."""
    found = []
    for batch in BATCHES:
        for k in DRAFTS:
            try:
                cost = surface.cost(batch, k)
            except UnknownCost:
                found.append((False, math.inf, False))
                continue
            found.append((cost.low <= truth(batch, k) <= cost.high, half_width(cost), (batch, k) in surface.measured))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    num_runs = parser.parse_args().runs
    columns = ("deployment", "launch s.d.", "time", "seconds", "held, measured / read off", "half width", "grid's", "precise", "")
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * len(columns)}")
    missed = 0
    for truth, most_time in DEPLOYMENTS.items():
        for launch_sd in (0.01, 0.02):
            shares, seconds, found, grid_widths = [], [], [], []
            for seed in range(num_runs):
                plan = plan_of(truth, launch_sd, seed)
                chosen = measure(plan, partial(still_wanted, curve=plan.curve))
                grid = measure(plan, full_grid)
                shares.append(chosen.seconds / grid.seconds)
                seconds.append(chosen.seconds)
                found += points(chosen.surface, truth)
                grid_widths += [width for _, width, _ in points(grid.surface, truth)]
            measured = [holds for holds, _, was in found if was]
            read_off = [holds for holds, _, was in found if not was]
            holding = min(statistics.fmean(part) for part in (measured, read_off) if part)
            ok = most_time is None or (holding >= LEAST_HELD and statistics.fmean(shares) <= most_time)
            missed += not ok
            cells = (
                (truth.__doc__ or "").strip().rstrip("."),
                f"{launch_sd:.0%}",
                f"{statistics.fmean(shares):.3f}",
                f"{statistics.fmean(seconds):.0f}",
                f"{_share(measured)} / {_share(read_off)}",
                f"{statistics.median(width for _, width, _ in found):.1%}",
                f"{statistics.median(grid_widths):.1%}",
                f"{statistics.fmean(width <= PRECISION for _, width, _ in found):.0%}",
                "no floor" if most_time is None else "ok" if ok else "MISSED",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if missed else 0


def _share(held: list[bool]) -> str:
    return f"{statistics.fmean(held):.1%}" if held else "none"


if __name__ == "__main__":
    sys.exit(main())
