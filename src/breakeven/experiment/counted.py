"""Prompts as token ids, one at a time, to a server that is launched for them: the tokens it answers and what it counts of drafts.

One request at a time, so that the counters between two scrapes belong to one prompt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from breakeven.engines.base import Arm, Counters
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError

__all__ = ["CountedAnswer", "count_answers"]

START_TIMEOUT_S = 900.0
REQUEST_TIMEOUT_S = 600.0
METRICS_PATH = "/metrics"
# Counters of a request that has ended may come a moment later.
SETTLE_S = 10.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAnswer:
    """One prompt's greedy answer and the rounds it took; `accepted_per_position[i]` counts rounds that accepted more than i
    drafts."""

    token_ids: tuple[int, ...]
    num_rounds: int
    num_accepted: int
    accepted_per_position: tuple[int, ...]


def count_answers(
    arm: Arm,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    stop_ids: Sequence[int],
    folder: Path,
    told: Callable[[str], None] = lambda _: None,
) -> list[CountedAnswer]:
    """Launch `arm`, ask it every prompt at temperature 0, and end it, whatever happens. `folder` gets its log.

    Raises:
        UsageError, CheckpointError: the arm cannot be launched.
        EngineError: it did not start, died, or does not say what is needed here.
    """
    engine = get_engine(arm.engine)
    engine.check(arm)
    if (refusal := engine.refusal(arm)) is not None:
        raise EngineError(refusal)
    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_served(arm, prompts, max_tokens, sorted(stop_ids), folder, told))


async def _served(
    arm: Arm, prompts: Sequence[Sequence[int]], max_tokens: int, stop_ids: list[int], folder: Path, told: Callable[[str], None]
) -> list[CountedAnswer]:
    engine = get_engine(arm.engine)
    port = choose_port()
    with LaunchLedger(folder) as ledger:
        told(f"starting {arm.engine}")
        server = ServerProcess.start(
            engine.launch_command(arm, port), name=arm.name, port=port, log=folder / f"{arm.name}.log", ledger=ledger
        )
        try:
            await server.wait_ready(engine.health_path, engine.explain_failure, timeout_s=START_TIMEOUT_S)
            told(f"{arm.engine} answers {len(prompts)} prompts")
            async with aiohttp.ClientSession(
                base_url=server.base_url,
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session:
                asked = _Asked(arm, session, max_tokens, stop_ids)
                answers = []
                for prompt in prompts:
                    server.check_alive(engine.explain_failure)
                    answers.append(await asked.answer(prompt))
                return answers
        finally:
            await server.stop()


class _Asked:
    def __init__(self, arm: Arm, session: aiohttp.ClientSession, max_tokens: int, stop_ids: list[int]) -> None:
        self._engine = get_engine(arm.engine)
        self._arm, self._session = arm, session
        self._max_tokens, self._stop_ids = max_tokens, stop_ids

    async def answer(self, prompt: Sequence[int]) -> CountedAnswer:
        before = await self._counters()
        request = {
            "model": self._arm.served_name or str(self._arm.target),
            "prompt": list(prompt),
            "max_tokens": self._max_tokens,
            "temperature": 0.0,
            "stop_token_ids": self._stop_ids,
            "return_token_ids": True,
        }
        try:
            async with self._session.post("/v1/completions", json=request) as response:
                text = await response.text()
                if response.status != 200:
                    raise EngineError(f"{self._arm.engine}: HTTP {response.status} to a prompt of token ids: {text[:300]!a}")
                choice = (await response.json())["choices"][0]
                token_ids = tuple(int(token) for token in choice["token_ids"])
        except (aiohttp.ClientError, TimeoutError, LookupError, TypeError, ValueError) as error:
            raise EngineError(
                f"{self._arm.engine}: no token ids in its answer ({type(error).__name__}: {str(error)[:200]!a}); expected "
                "choices[0].token_ids, which vLLM gives from 0.10.2 on"
            ) from error
        after = await self._settled(before, len(token_ids))
        assert before.acceptance is not None
        assert after.acceptance is not None
        counts = after.acceptance.since(before.acceptance)
        return CountedAnswer(
            token_ids=token_ids,
            num_rounds=counts.num_rounds,
            num_accepted=counts.num_accepted,
            accepted_per_position=counts.accepted_per_position,
        )

    async def _settled(self, before: Counters, num_tokens: int) -> Counters:
        """The counters once they hold the whole answer, or as they are when they will not."""
        until_s = time.monotonic() + SETTLE_S
        while True:
            counters = await self._counters()
            if counters.generation_tokens - before.generation_tokens >= num_tokens or time.monotonic() > until_s:
                return counters
            await asyncio.sleep(LOOK_S)

    async def _counters(self) -> Counters:
        try:
            async with self._session.get(METRICS_PATH) as response:
                counters = self._engine.parse_metrics(await response.text(), time.monotonic())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError(f"{self._arm.engine}: its metrics cannot be read ({error})") from error
        if counters.acceptance is None:
            raise EngineError(f"{self._arm.engine}: its metrics do not count drafts; expected a server that speculates")
        return counters
