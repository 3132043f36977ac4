"""An arm that can be measured now: a server that was launched or attached to, or one that is only simulated."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from breakeven.engines.base import Arm, Counters
from breakeven.engines.fake.answers import simulate_answers
from breakeven.engines.fake.simulate import simulate_trial
from breakeven.experiment.schedule import Step
from breakeven.loadgen.answers import GreedyAnswer, OnAnswer
from breakeven.loadgen.measures import tokens_in_window
from breakeven.loadgen.run import MIN_TOKENS, Progress
from breakeven.loadgen.samples import LoadPoint, LoadResult, Prompt

__all__ = ["MAX_STRETCH", "Answering", "LiveArm", "MakeLive", "Measured", "SimulatedArm", "seed_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One window: what the client saw and what the counters said at its edges (None where there are none).

    Looks in between: `num_waiting` at the queue, `gauges` at a gauge of accept length, `healthy` at the health page, each where the
    server has one.
    """

    result: LoadResult
    counters: tuple[Counters, Counters] | None
    num_waiting: tuple[int, ...] = ()
    gauges: tuple[float, ...] = ()
    healthy: tuple[bool, ...] = ()


class LiveArm(Protocol):
    """One launch of one arm. `start` once, `measure` any number of times, `stop` always, also after a failed start."""

    command: str

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        """Until requests are answered; returns what the engine says of itself.

        Raises:
            LaunchError: it never became ready.
        """
        ...

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        """One window. `index` counts the windows of this launch.

        Raises:
            EngineDied: the server went away.
        """
        ...

    async def stop(self) -> None:
        """Nothing of the launch is left running when this returns; an attached server is left alone."""
        ...


class Answering(LiveArm, Protocol):
    """A launch that can also be asked for whole answers."""

    async def answer(
        self, prompts: Sequence[Prompt], *, max_tokens: int, concurrency: int, seed: int, on_answer: OnAnswer
    ) -> list[GreedyAnswer]:
        """Greedy answers in the order of `prompts`. `seed` tells passes of a simulated arm apart; servers never see it.

        Raises:
            EngineDied: the server went away.
        """
        ...


MakeLive = Callable[[Arm], LiveArm]

# A window may last so many times as long as planned where a server is slow (loadgen/run.py has the rule).
MAX_STRETCH = 8


def seed_of(seed: int, *parts: object) -> int:
    """A seed that depends on the plan's and on what it is for, the same on every machine and Python."""
    return zlib.crc32("\0".join(map(str, (seed, *parts))).encode())


class SimulatedArm:
    """The fake engine: no process, no waiting, and a truth declared in the plan."""

    command = "(simulated)"

    def __init__(self, arm: Arm, *, seed: int, window_s: Callable[[LoadPoint], float]) -> None:
        self._arm, self._seed, self._window_s = arm, seed, window_s
        self._launch = ""

    async def start(self, launch: str, on_wait: Callable[[float, str], None]) -> Mapping[str, object]:
        self._launch = launch
        on_wait(0.0, "")
        return {"engine": "fake", **self._arm.simulation}

    async def measure(self, step: Step, index: int, on_progress: Callable[[Progress], None]) -> Measured:
        on_progress(Progress(phase="window", remaining_s=0.0, num_tokens=0, num_under_way=0, num_errors=0))
        for times in range(1, MAX_STRETCH + 1):
            result, counters = simulate_trial(
                self._arm,
                step.load,
                window_s=times * self._window_s(step.load),
                launch_seed=seed_of(self._seed, self._launch),
                trial_seed=seed_of(self._seed, self._launch, step.load.label, step.block, step.repeat, step.attempt),
                trial_index=index,
            )
            if tokens_in_window(result) >= MIN_TOKENS:
                break
        return Measured(result=result, counters=counters)

    async def answer(
        self, prompts: Sequence[Prompt], *, max_tokens: int, concurrency: int, seed: int, on_answer: OnAnswer
    ) -> list[GreedyAnswer]:
        answers = simulate_answers(
            self._arm, prompts, max_tokens=max_tokens, seed=seed_of(self._seed, self._arm.name, seed, concurrency)
        )
        for prompt, answer in zip(prompts, answers, strict=True):
            on_answer(prompt, answer)
        return answers

    async def stop(self) -> None:
        return
