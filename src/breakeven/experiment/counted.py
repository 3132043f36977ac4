"""Prompts as token ids, one at a time, to a server that is launched for them: the tokens it answers and what it counts of drafts.

SGLang counts drafts request by request and says so with each native answer. vLLM counts them in its metrics: one request at a time,
so that what is counted between two scrapes belongs to one prompt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Counters
from breakeven.engines.ledger import LaunchLedger
from breakeven.engines.ports import choose_port
from breakeven.engines.process import ServerProcess
from breakeven.engines.registry import get_engine
from breakeven.engines.sglang.meta_info import meta_info_acceptance
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
        return await (self._native(prompt) if self._arm.engine == "sglang" else self._between_scrapes(prompt))

    async def _native(self, prompt: Sequence[int]) -> CountedAnswer:
        sampling = {"temperature": 0.0, "max_new_tokens": self._max_tokens, "stop_token_ids": self._stop_ids}
        answer = await self._post("/generate", {"input_ids": list(prompt), "sampling_params": sampling})
        try:
            token_ids = tuple(int(token) for token in answer["output_ids"])
            counts = meta_info_acceptance([answer["meta_info"]])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(
                f"sglang: no token ids or counts in its answer ({type(error).__name__}: {str(error)[:200]!a}); expected output_ids "
                "and meta_info, which SGLang's /generate gives"
            ) from error
        if counts is None:
            # the first token comes from the prompt's pass, so an answer of one token takes no round
            counts = Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=0)
            if len(token_ids) > 1:
                raise EngineError("sglang: its meta_info counts no rounds; expected a server that speculates")
        return self._counted(token_ids, counts)

    async def _between_scrapes(self, prompt: Sequence[int]) -> CountedAnswer:
        before = await self._counters()
        request = {
            "model": self._arm.served_name or str(self._arm.target),
            "prompt": list(prompt),
            "max_tokens": self._max_tokens,
            "temperature": 0.0,
            "stop_token_ids": self._stop_ids,
            "return_token_ids": True,
        }
        answer = await self._post("/v1/completions", request)
        try:
            token_ids = tuple(int(token) for token in answer["choices"][0]["token_ids"])
        except (LookupError, TypeError, ValueError) as error:
            raise EngineError(
                f"{self._arm.engine}: no token ids in its answer ({type(error).__name__}: {str(error)[:200]!a}); expected "
                "choices[0].token_ids, which vLLM gives from 0.10.2 on"
            ) from error
        after = await self._settled(before, len(token_ids))
        assert before.acceptance is not None
        assert after.acceptance is not None
        return self._counted(token_ids, after.acceptance.since(before.acceptance))

    async def _post(self, path: str, request: dict[str, object]) -> Any:
        try:
            async with self._session.post(path, json=request) as response:
                text = await response.text()
                if response.status != 200:
                    raise EngineError(f"{self._arm.engine}: HTTP {response.status} to a prompt of token ids: {text[:300]!a}")
                return await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise EngineError(
                f"{self._arm.engine}: {path} gave no answer ({type(error).__name__}: {str(error)[:200]!a})"
            ) from error

    def _counted(self, token_ids: tuple[int, ...], counts: Acceptance) -> CountedAnswer:
        num_drafts = self._arm.speculation.num_draft_tokens if self._arm.speculation is not None else 0
        positions = counts.accepted_per_position
        return CountedAnswer(
            token_ids=token_ids,
            num_rounds=counts.num_rounds,
            num_accepted=counts.num_accepted,
            # engines leave out positions that nothing reached
            accepted_per_position=(*positions, *(0,) * (num_drafts - len(positions))),
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
