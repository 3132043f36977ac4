"""Whole runs of fake arms, trial by trial, with known truth."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.fake.simulate import simulate_trial
from breakeven.experiment.record import RunRecord
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import LoadPoint


def fake_arm(
    name: str, k: int | None = None, *, forced: float | None = None, method: str = "eagle3", cap: int = 8, **truth: object
) -> Arm:
    speculation = None
    if k is not None:
        speculation = Speculation(method=method, num_draft_tokens=k, forced_accept_length=forced)  # type: ignore[arg-type]
    return Arm(name=name, engine="fake", speculation=speculation, max_running_requests=cap, simulation=truth)


class Simulate(Protocol):
    def __call__(
        self,
        arms: Sequence[Arm],
        *,
        loads: Sequence[int] = (1,),
        rates: Sequence[float] = (),
        launches: int = 3,
        repeats: int = 2,
        min_launches: int | None = None,
        max_launches: int | None = None,
        seed: int = 0,
        window_s: float = 10.0,
        temperature: float = 0.0,
        threshold: float = 0.03,
        failures: Mapping[str, str] | None = None,
    ) -> RunRecord: ...


@pytest.fixture
def simulate() -> Simulate:
    return simulated_run


@pytest.fixture
def make_arm() -> Callable[..., Arm]:
    return fake_arm


def simulated_run(
    arms: Sequence[Arm],
    *,
    loads: Sequence[int] = (1,),
    rates: Sequence[float] = (),
    launches: int = 3,
    repeats: int = 2,
    min_launches: int | None = None,
    max_launches: int | None = None,
    seed: int = 0,
    window_s: float = 10.0,
    temperature: float = 0.0,
    threshold: float = 0.03,
    failures: Mapping[str, str] | None = None,
) -> RunRecord:
    """The first arm is the baseline."""
    points = [LoadPoint(concurrency=concurrency, max_tokens=64, temperature=temperature) for concurrency in loads]
    points += [LoadPoint(rate_per_s=rate, max_tokens=64, temperature=temperature) for rate in rates]
    trials = [
        _trial(arm, point, block, place, repeat, place_in_launch, seed, window_s)
        for block in range(launches)
        for place, arm in enumerate(arms)
        for place_in_launch, (point, repeat) in enumerate((point, repeat) for repeat in range(repeats) for point in points)
    ]
    return RunRecord(
        name="simulated",
        baseline=arms[0].name,
        threshold=threshold,
        min_launches=launches if min_launches is None else min_launches,
        max_launches=launches if max_launches is None else max_launches,
        arms=arms,
        loads=points,
        trials=trials,
        failures=failures or {},
    )


def _trial(
    arm: Arm, point: LoadPoint, block: int, place: int, repeat: int, place_in_launch: int, seed: int, window_s: float
) -> Trial:
    launch_seed = zlib.crc32(f"{seed} {arm.name} {block}".encode())
    result, counters = simulate_trial(
        arm,
        point,
        window_s=window_s,
        launch_seed=launch_seed,
        trial_seed=zlib.crc32(f"{launch_seed} {point.label} {repeat}".encode()),
        trial_index=place_in_launch,
    )
    return Trial(
        arm=arm.name,
        load=point,
        block=block,
        launch=f"{arm.name}-{block}",
        order=place,
        repeat=repeat,
        started_at_unix_s=1000.0 * block + 100.0 * place + place_in_launch,
        window_s=window_s,
        samples=result.samples,
        health=result.health,
        counters=counters,
    )
