"""From a server that reports drafts with its answers to a trial's acceptance: asked for by release, read, preferred, marked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Speculation
from breakeven.engines.registry import get_engine
from breakeven.experiment.schedule import Step
from breakeven.experiment.served import AttachedArm, Questions
from breakeven.experiment.summary import trial_acceptance
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import LoadPoint, Prompt

NUM_TOKENS = 7
# 3 rounds of 3 drafts, of which 0, 1 and 2 were accepted: with the first token and a bonus token each, 7 tokens
REPORT = {
    "spec_verify_ct": 3, "spec_num_correct_drafts": 3, "spec_num_proposed_drafts": 9,
    "spec_correct_drafts_histogram": [1, 1, 1], "spec_accept_rate": 0.33,
}  # fmt: skip
GAUGES = "sglang:num_running_reqs 2\nsglang:num_queue_reqs 0\nsglang:spec_accept_length 3.1\n"
COUNTED = "sglang:spec_verify_calls_total {rounds}\nsglang:num_requests_total {requests}\nsglang:generation_tokens_total {tokens}\n"


class Server:
    """SGLang as far as a load client and a scraper see it."""

    def __init__(self, version: str, *, has_metrics: bool = True, counts: bool = True) -> None:
        self.version, self.has_metrics, self.counts = version, has_metrics, counts
        self.asked: list[bool] = []
        self.ended = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/v1/models":
                return web.json_response({"data": [{"id": "m"}]})
            case "/health":
                return web.Response()
            case "/server_info":
                return web.json_response({"version": self.version})
            case "/metrics" if self.has_metrics:
                counted = COUNTED.format(rounds=3 * self.ended, requests=self.ended, tokens=NUM_TOKENS * self.ended)
                return web.Response(text=GAUGES + counted * self.counts)
            case "/v1/chat/completions":
                return await self._answer(request)
        return web.Response(status=404)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append("return_spec_tokens_details" in await request.json())
        response = web.StreamResponse()
        await response.prepare(request)
        for count in range(1, NUM_TOKENS + 1):
            usage = {"prompt_tokens": 3, "completion_tokens": count}
            reason = "length" if count == NUM_TOKENS else None
            choice = {"delta": {"content": f"word{count} "}, "finish_reason": reason}
            await response.write(b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n")
        if self.asked[-1] and self.version >= "0.5.19":
            event = {"choices": [], "sglext": {"spec_tokens_details": REPORT}}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.ended += 1
        await response.write(b"data: [DONE]\n\n")
        return response


Measure = Callable[[Server], Awaitable[Acceptance | None]]


@pytest.fixture
async def measure() -> AsyncIterator[Measure]:
    servers: list[TestServer] = []

    async def measured(server: Server) -> Acceptance | None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", server.handle)
        started = TestServer(app)
        await started.start_server()
        servers.append(started)
        speculation = Speculation(method="eagle3", num_draft_tokens=3)
        arm = Arm(name="a", engine="sglang", url=str(started.make_url("")).rstrip("/"), speculation=speculation)
        load = LoadPoint(concurrency=2, max_tokens=NUM_TOKENS)
        prompts = [Prompt(id="p", kind="k", messages=(("user", "hi"),))]
        questions = Questions(prompts=prompts, warmup_s=0.05, window_s=lambda load: 0.3, seed=0)
        live = AttachedArm(arm, get_engine("sglang"), questions)
        await live.start("a/attached", lambda _elapsed_s, _line: None)
        step = Step(arm="a", load=load, block=0, repeat=0, order=0)
        found = await live.measure(step, 0, lambda _progress: None)
        return trial_acceptance(
            Trial(
                arm="a", load=load, block=0, launch="a/attached", order=0, repeat=0, started_at_unix_s=0.0,
                window_s=found.result.window_s, samples=found.result.samples, health=found.result.health, counters=found.counters,
            )
        )  # fmt: skip

    yield measured
    for server in servers:
        await server.close()


async def test_a_release_that_reports_is_asked_and_believed(measure: Measure) -> None:
    server = Server("0.5.23")
    found = await measure(server)
    assert all(server.asked)
    assert found is not None
    assert (found.accept_length, found.source, found.exact_steps) == (2.0, "requests", True)
    assert found.draft_acceptance == pytest.approx(1 / 3)
    assert found.joint == pytest.approx((2 / 3, 1 / 3))


async def test_an_older_one_is_not_asked_and_its_counters_do(measure: Measure) -> None:
    server = Server("0.5.16")
    found = await measure(server)
    assert not any(server.asked)
    assert found is not None
    assert (found.accept_length, found.source, found.exact_steps) == (2.0, "counters", False)


async def test_one_that_counts_nothing_has_its_gauge(measure: Measure) -> None:
    found = await measure(Server("0.5.8", counts=False))
    assert found is not None
    assert (found.accept_length, found.source) == (pytest.approx(3.1), "gauge")


async def test_behind_a_gateway_nothing_is_known_of_the_release_so_nothing_is_asked(measure: Measure) -> None:
    server = Server("0.5.23", has_metrics=False)
    assert await measure(server) is None
    assert not any(server.asked)
