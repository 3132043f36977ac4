"""What choosing points of the break-even curve saves, and whether its intervals hold: simulated deployments with known truth.

    python benchmarks/surface.py [--runs 40]

Every deployment is measured twice by the product's own runner on the fake engine: as `curve:` does it, and as a full grid, where
each number of drafts is measured at both accepted lengths until the same precision is reached. Prints a Markdown table and exits
with 1 where a floor is missed: at most a third of the grid's time (a half where there is a cliff to find), and 95 % intervals that
hold the truth at 93 % of points or more.
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
# a production server: a minute to load, half a minute a window
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


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    num_launches: int
    surface: MeasuredSurface


def plan_of(truth: Callable[[int, int], float], launch_sd: float, seed: int) -> Plan:
    noise = {"launch_sd": launch_sd, "drift_sd": 0.005, "drift_correlation": 0.5}
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
        return SimulatedArm(arm, seed=plan.seed, window_s=plan.trial.window_s)

    with tempfile.TemporaryDirectory() as folder, RunStore(Path(folder) / "run", plan) as store:
        store.begin({})
        carry_out(plan, store, make_live, choose, lambda _: None, side_by_side=False)
        record = store.record()
    launches = len({trial.launch for trial in record.trials})
    run = RunSummary(record)
    return Measured(
        seconds=launches * LAUNCH_S + len(record.trials) * (WARMUP_S + WINDOW_S),
        num_launches=launches,
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
    columns = ("deployment", "launch s.d.", "time", "launches", "points held", "measured / read off", "half width", "grid's", "")
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|")
    missed = 0
    for truth, most_time in ((straight, 1 / 3), (cliff, 1 / 2), (bending, 1 / 3)):
        for launch_sd in (0.01, 0.02):
            shares, held, held_measured, held_between, widths, grid_widths, launches = [], [], [], [], [], [], []
            for seed in range(num_runs):
                plan = plan_of(truth, launch_sd, seed)
                chosen = measure(plan, partial(still_wanted, curve=plan.curve))
                grid = measure(plan, full_grid)
                shares.append(chosen.seconds / grid.seconds)
                launches.append(chosen.num_launches)
                found = points(chosen.surface, truth)
                held += [holds for holds, _, _ in found]
                held_measured += [holds for holds, _, was in found if was]
                held_between += [holds for holds, _, was in found if not was]
                widths += [width for _, width, _ in found]
                grid_widths += [width for _, width, _ in points(grid.surface, truth)]
            share, holding = statistics.fmean(shares), statistics.fmean(held)
            ok = holding >= 0.93 and share <= most_time
            missed += not ok
            cells = (
                (truth.__doc__ or "").strip().rstrip("."),
                f"{launch_sd:.0%}",
                f"{share:.2f}",
                f"{statistics.fmean(launches):.0f}",
                f"{holding:.1%}",
                f"{_share(held_measured)} / {_share(held_between)}",
                f"{statistics.median(widths):.1%}",
                f"{statistics.median(grid_widths):.1%}",
                "ok" if ok else "MISSED",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if missed else 0


def _share(held: list[bool]) -> str:
    return f"{statistics.fmean(held):.1%}" if held else "none"


if __name__ == "__main__":
    sys.exit(main())
