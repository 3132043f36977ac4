from __future__ import annotations

from collections.abc import Callable

import pytest

from breakeven.engines.attached import Scraper
from breakeven.engines.base import Arm
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError, LaunchError
from breakeven.experiment import served
from breakeven.experiment.live import MAX_STRETCH
from breakeven.experiment.plan import Plan
from breakeven.experiment.schedule import Step
from breakeven.experiment.served import AttachedArm, Questions
from breakeven.loadgen.samples import ClientHealth, LoadPoint, LoadResult


async def test_a_server_that_goes_away_while_it_is_looked_at_is_one_arms_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def there(*_: object) -> tuple[str, bool]:
        return "m", True

    async def gone(_: Scraper) -> str:
        raise EngineError("http://h/metrics answered 500; expected 200")

    monkeypatch.setattr(served, "check_attached", there)
    monkeypatch.setattr(Scraper, "metrics_text", gone)
    questions = Questions(prompts=(), warmup_s=5.0, window_s=lambda load: 30.0, seed=0)
    arm = AttachedArm(Arm(name="b", engine="vllm", url="http://h"), get_engine("vllm"), questions)
    with pytest.raises(LaunchError, match=r"arm b: http://h/metrics answered 500"):
        await arm.start("b/attached", lambda elapsed_s, line: None)


async def test_a_load_point_is_measured_for_its_own_window(make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, tuple[float, float]] = {}

    async def loaded(_: object, load: LoadPoint, *__: object, window_s: float, max_window_s: float, **___: object) -> LoadResult:
        asked[load.label] = (window_s, max_window_s)
        nothing = ClientHealth(loop_lag_p99_s=0.0, dispatch_delay_p99_s=0.0, cpu_share=0.0)
        return LoadResult(window_s=window_s, samples=(), health=nothing)

    monkeypatch.setattr(served, "run_load", loaded)
    plan = make_plan()
    plan = plan.model_copy(update={"load": (plan.load[0].model_copy(update={"window_s": 40.0}), plan.load[1])})
    arm = AttachedArm(Arm(name="b", engine="vllm", url="http://h"), get_engine("vllm"), Questions.of(plan, ()))
    for load in plan.loads():
        await arm.measure(Step(arm="b", load=load, block=0, repeat=0, order=0), 0, lambda progress: None)
    assert asked == {"c=1": (40.0, MAX_STRETCH * 40.0), "c=4": (10.0, MAX_STRETCH * 10.0)}
