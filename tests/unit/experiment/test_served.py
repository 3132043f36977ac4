from __future__ import annotations

import pytest

from breakeven.engines.attached import Scraper
from breakeven.engines.base import Arm
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError, LaunchError
from breakeven.experiment import served
from breakeven.experiment.plan_sections import TrialPlan
from breakeven.experiment.served import AttachedArm, Questions


async def test_a_server_that_goes_away_while_it_is_looked_at_is_one_arms_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def there(*_: object) -> tuple[str, bool]:
        return "m", True

    async def gone(_: Scraper) -> str:
        raise EngineError("http://h/metrics answered 500; expected 200")

    monkeypatch.setattr(served, "check_attached", there)
    monkeypatch.setattr(Scraper, "metrics_text", gone)
    questions = Questions(prompts=(), trial=TrialPlan(), seed=0)
    arm = AttachedArm(Arm(name="b", engine="vllm", url="http://h"), get_engine("vllm"), questions)
    with pytest.raises(LaunchError, match=r"arm b: http://h/metrics answered 500"):
        await arm.start("b/attached", lambda elapsed_s, line: None)
