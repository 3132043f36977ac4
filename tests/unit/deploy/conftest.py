"""Simulated runs of arms that claim a real engine, and run folders that hold a launch command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.fake.simulate import simulate_trial
from breakeven.experiment.plan import parse_plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.store import RunStore
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import LoadPoint

LOADS = (LoadPoint(concurrency=1, max_tokens=64), LoadPoint(concurrency=4, max_tokens=64))


def a_trial(arm: Arm, load: LoadPoint, block: int, *, seed: int = 0) -> Trial:
    result, counters = simulate_trial(
        replace(arm, engine="fake"), load, window_s=10.0, launch_seed=seed * 100 + block, trial_seed=seed * 100 + block
    )
    return Trial(
        arm=arm.name,
        load=load,
        block=block,
        launch=f"{arm.name}/{block + 1}",
        order=0,
        repeat=0,
        started_at_unix_s=float(block),
        window_s=result.window_s,
        samples=result.samples,
        health=result.health,
        counters=counters,
    )


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    return a_trial


@pytest.fixture
def plain() -> Arm:
    return Arm(name="plain", engine="local")


@pytest.fixture
def eagle() -> Arm:
    """Pays, by far."""
    speculation = Speculation(method="eagle3", num_draft_tokens=3)
    return Arm(name="eagle", engine="local", speculation=speculation, simulation={"joint": [0.9, 0.8, 0.7], "cost_ratio": 1.2})


@pytest.fixture
def make_record() -> Callable[..., RunRecord]:
    """The first arm is the baseline."""

    def make(*arms: Arm, launches: int = 3, interrupted: bool = False, failures: dict[str, str] | None = None) -> RunRecord:
        return RunRecord(
            name="run",
            baseline=arms[0].name,
            threshold=0.03,
            min_launches=launches,
            max_launches=launches,
            arms=arms,
            loads=LOADS,
            trials=[
                a_trial(arm, load, block, seed=place)
                for block in range(launches)
                for load in LOADS
                for place, arm in enumerate(arms)
                if arm.name not in (failures or {})
            ],
            interrupted=interrupted,
            failures=failures or {},
        )

    return make


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """A run folder whose arm `own` is started by the user's own command, which became ready once."""

    def make(*command: str) -> Path:
        words = ", ".join(f"'{word}'" for word in (*command, "--port", "{port}"))
        plan = parse_plan(
            f"""
name: run
target: /m
load: [{{concurrency: 1}}]
trial: {{warmup_s: 0, window_s: 0.2}}
baseline: own
start_timeout_s: 20
arms:
  own: {{engine: vllm, command: [{words}]}}
""",
            "plan.yaml",
        )
        folder = tmp_path / "run"
        with RunStore(folder, plan) as store:
            store.begin({"env.OMP_NUM_THREADS": "1", "env.HF_TOKEN": "(hidden)", "env.BREAKEVEN_HOME": "/b"})
            launch = store.open_launch("own", 0, f"A='b c' {' '.join(command)} --port 20001")
            store.launch_ready(launch, 1.0, {})
            store.finish()
        return folder

    return make
