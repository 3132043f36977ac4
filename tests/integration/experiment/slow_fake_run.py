"""`python slow_fake_run.py PLAN FOLDER`: a run of the fake engine in which a trial takes 30 ms, so that it can be killed in one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from breakeven.engines.base import Arm
from breakeven.experiment.events import Event, TrialStarted
from breakeven.experiment.live import LiveArm, Measured, SimulatedArm
from breakeven.experiment.measure import measure
from breakeven.experiment.plan import load_plan
from breakeven.experiment.schedule import Step
from breakeven.loadgen.run import Progress


class SlowArm(SimulatedArm):
    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        await asyncio.sleep(0.03)
        return await super().measure(step, index, on_progress)


def main() -> None:
    plan = load_plan(Path(sys.argv[1]))

    def make_live(arm: Arm) -> LiveArm:
        return SlowArm(arm, seed=plan.seed, window_s=plan.window_s)

    def tell(event: Event) -> None:
        if isinstance(event, TrialStarted):
            print("trial", flush=True)

    print("ready", flush=True)
    measure(plan, Path(sys.argv[2]), tell, make_live=make_live)


main()
