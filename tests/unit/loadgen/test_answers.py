"""Whole answers from servers that tell much, little, nothing, or lies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from breakeven.errors import UsageError
from breakeven.loadgen.answers import GreedyAnswer, ask_greedily
from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.samples import Prompt

PROMPTS = [Prompt(id=f"p{number}", kind="chat", messages=(("user", f"question {number}"),)) for number in range(3)]
Reply = Callable[[dict[str, object]], object]
Ask = Callable[[Reply], Awaitable[list[GreedyAnswer]]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    servers: list[TestServer] = []

    async def asked(reply: Reply) -> list[GreedyAnswer]:
        async def handle(request: web.Request) -> web.StreamResponse:
            found = reply(await request.json())
            return found if isinstance(found, web.StreamResponse) else web.Response(body=orjson.dumps(found))

        app = web.Application()
        app.router.add_post("/v1/chat/completions", handle)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        endpoint = Endpoint(url=str(server.make_url("")), model="m")
        return await ask_greedily(endpoint, PROMPTS, max_tokens=4, concurrency=2)

    yield asked
    for server in servers:
        await server.close()


def whole(text: str, **choice: object) -> dict[str, object]:
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop", **choice}], "usage": {"completion_tokens": 2}}


async def test_tokens_with_alternatives(ask: Ask) -> None:
    entry = {
        "token": "hi",
        "logprob": -0.1,
        "bytes": [104, 105],
        "top_logprobs": [{"token": "hi", "logprob": -0.1, "bytes": [104, 105]}],
    }
    seen: list[dict[str, object]] = []

    def reply(body: dict[str, object]) -> object:
        seen.append(body)
        return whole("hi", logprobs={"content": [entry]}, token_ids=[7])

    answers = await ask(reply)
    assert [answer.prompt_id for answer in answers] == ["p0", "p1", "p2"]
    first = answers[0]
    assert (first.text, first.tokens, first.token_ids, first.alternatives) == ("hi", ("6869",), (7,), ((("6869", -0.1),),))
    assert first.error is None
    assert all(body["temperature"] == 0.0 and body["max_tokens"] == 4 and "stream" not in body for body in seen)
    assert {body["messages"][0]["content"] for body in seen} == {"question 0", "question 1", "question 2"}  # type: ignore[index]


async def test_tokens_by_their_numbers_are_called_so_everywhere(ask: Ask) -> None:
    # vLLM gives the text's bytes with the token itself, and those of its name with the alternatives
    entry = {
        "token": "token_id:7",
        "bytes": [104, 105],
        "top_logprobs": [{"token": "token_id:7", "logprob": -0.1, "bytes": list(b"token_id:7")}],
    }
    first = (await ask(lambda _body: whole("hi", logprobs={"content": [entry]})))[0]
    assert first.tokens == (b"token_id:7".hex(),)
    assert first.alternatives == (((b"token_id:7".hex(), -0.1),),)


async def test_a_server_that_refuses_is_asked_more_plainly(ask: Ask) -> None:
    def no_logprobs(body: dict[str, object]) -> object:
        return web.Response(status=400, text="logprobs") if "logprobs" in body else whole("x", token_ids=[1, 2])

    def nothing(body: dict[str, object]) -> object:
        return web.Response(status=422, text="unknown field") if "return_token_ids" in body else whole("x")

    assert [(answer.tokens, answer.token_ids) for answer in await ask(no_logprobs)] == [((), (1, 2))] * 3
    assert [(answer.text, answer.token_ids, answer.error) for answer in await ask(nothing)] == [("x", (), None)] * 3


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {"choices": []},
        {"choices": [{"message": {"content": 3}}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{}]}}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"token": "x", "bytes": [999]}]}}]},
        {"choices": [{"message": {"content": "x"}, "token_ids": ["no number"]}]},
        {"choices": [{"message": {"content": "x"}, "logprobs": 7}]},
    ],
)
async def test_nonsense_is_an_answer_with_an_error(ask: Ask, reply: object) -> None:
    assert all(answer.error for answer in await ask(lambda _body: reply))


async def test_failures_are_told_in_one_line(ask: Ask) -> None:
    answers = await ask(lambda _body: web.Response(status=500, text="one\n\x1b[31mtwo"))
    assert [answer.error for answer in answers] == ["ValueError: HTTP 500: one [31mtwo"] * 3
    answers = await ask(lambda _body: web.Response(status=400, text="too long"))
    assert [answer.error for answer in answers] == ["HTTP 400: too long"] * 3


async def test_odd_values_are_left_out(ask: Ask) -> None:
    odd = {"choices": [{"message": {"content": None}, "finish_reason": 5}], "usage": {"completion_tokens": -3}}
    first = (await ask(lambda _body: odd))[0]
    assert (first.text, first.num_tokens, first.finish_reason, first.degenerate) == ("", 0, None, "empty")


async def test_a_key_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UsageError, match="NO_SUCH_KEY is not set"):
        await ask_greedily(Endpoint(url="http://h", model="m", api_key_env="NO_SUCH_KEY"), PROMPTS, max_tokens=1, concurrency=1)
