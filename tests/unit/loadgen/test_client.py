from __future__ import annotations

import asyncio
import json
import resource
import time
from typing import Any

import pytest

from breakeven.errors import UsageError
from breakeven.loadgen.client import Answer, ChatClient, Endpoint, request_body
from breakeven.loadgen.samples import LoadPoint, Prompt

PROMPT = Prompt(id="a", kind="chat", messages=(("system", "be brief"), ("user", "hällo")))
POINT = LoadPoint(concurrency=1, max_tokens=6)


async def ask(server: Any, point: LoadPoint = POINT) -> Answer:
    answer = Answer()
    async with ChatClient(server.endpoint) as client:
        await client.ask(request_body("scripted", PROMPT, point), answer)
    return answer


async def test_an_answer_with_several_tokens_a_chunk(serve: Any, script: Any) -> None:
    server = await serve(script(tokens_per_chunk=4, interval_s=0.01))
    before_s = time.perf_counter()
    answer = await ask(server)
    assert answer.error is None
    assert [tokens for _, tokens in answer.stream.arrivals] == [4, 6]
    assert answer.stream.text == "word0 word1 "
    assert answer.start_s is not None
    assert answer.end_s is not None
    assert answer.stream.first_token_s is not None
    assert before_s <= answer.start_s <= answer.stream.first_token_s - 0.005 < answer.end_s <= time.perf_counter()


async def test_what_is_sent(serve: Any, script: Any) -> None:
    server = await serve(script())
    await ask(server, LoadPoint(concurrency=1, max_tokens=3, temperature=0.7, top_p=0.9))
    await ask(server, LoadPoint(concurrency=1, max_tokens=3, fixed_length=True))
    free, fixed = server.bodies
    assert free == {
        "model": "scripted",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hällo"}],
        "max_tokens": 3,
        "temperature": 0.7,
        "top_p": 0.9,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert fixed["ignore_eos"] is True
    assert "Authorization" not in server.headers[0]
    assert server.headers[0]["Accept-Encoding"] == "identity"
    assert json.loads(request_body("m", PROMPT, POINT, max_tokens=2))["max_tokens"] == 2
    told = json.loads(request_body("m", PROMPT, POINT, extra_fields={"return_spec_tokens_details": True, "model": "other"}))
    assert (told["return_spec_tokens_details"], told["model"]) == (True, "m")


@pytest.mark.parametrize(
    ("script_of", "error"),
    [
        ({"status": 503, "refusal": '{"error": {"message": "over\\nloaded"}}'}, "HTTP 503 Service Unavailable: over loaded"),
        (
            {"status": 422, "refusal": '{"message": "no such model", "object": "error"}'},
            "HTTP 422 Unprocessable Entity: no such model",
        ),
        ({"status": 404, "refusal": "<h1>lost</h1>"}, "HTTP 404 Not Found: <h1>lost</h1>"),
        ({"status": 500, "refusal": ""}, "HTTP 500 Internal Server Error"),
        ({"cut_after": 3}, "connection lost after 3 tokens"),
        ({"stop_after": 2}, "stream ended early, after 2 tokens"),
        ({"usage": "none"}, "no usage counts in the stream: the server ignores stream_options.include_usage"),
        ({"raw": b"data: {broken\n\n"}, "malformed event: {broken"),
        ({"raw": b"<html>welcome</html>"}, "stream ended early, after 0 tokens"),
    ],
)
async def test_whatever_goes_wrong_is_the_answers_error(serve: Any, script: Any, script_of: dict[str, Any], error: str) -> None:
    answer = await ask(await serve(script(**script_of)))
    assert answer.error == error
    assert answer.end_s is not None


async def test_nobody_listens() -> None:
    answer = Answer()
    async with ChatClient(Endpoint(url="http://127.0.0.1:1", model="m")) as client:
        await client.ask(b"{}", answer)
    assert answer.error is not None
    assert answer.error.startswith("cannot connect: ")


async def test_redirects_are_not_followed(serve: Any, script: Any) -> None:
    answer = await ask(await serve(script(status=302)))
    assert answer.error is not None
    assert answer.error.startswith("HTTP 302 Found")


async def test_cancelling_closes_the_connection(serve: Any, script: Any) -> None:
    server = await serve(script(interval_s=0.01))
    answer = Answer()
    async with ChatClient(server.endpoint) as client:
        task = asyncio.create_task(client.ask(request_body("m", PROMPT, LoadPoint(concurrency=1, max_tokens=10_000)), answer))
        while answer.stream.output_tokens < 3:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if server.num_aborted:
                break
            await asyncio.sleep(0.01)
        assert server.num_aborted == 1
    assert answer.error is None
    assert answer.end_s is not None
    assert answer.stream.output_tokens >= 3


async def test_the_key_is_read_from_the_environment_and_shown_nowhere(
    serve: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    server = await serve(script(status=401, refusal='{"error": {"message": "wrong key sk-secret given"}}'))
    server.endpoint = Endpoint(url=server.endpoint.url + "/v1/", model="m", api_key_env="SOME_KEY")
    answer = await ask(server)
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"
    assert answer.error == "HTTP 401 Unauthorized: wrong key [API key] given"
    assert "sk-secret" not in repr(server.endpoint)


def test_a_missing_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UsageError, match="environment variable SOME_KEY is not set"):
        ChatClient(Endpoint(url="http://127.0.0.1:1", model="m", api_key_env="SOME_KEY"))


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_urls_with_and_without_v1(url: str) -> None:
    assert Endpoint(url=url, model="m").chat_url == "http://h:1/v1/chat/completions"


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://h", "http://"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match="expected http://HOST:PORT"):
        Endpoint(url=url, model="m")


async def test_cookies_are_not_sent_back(serve: Any, script: Any) -> None:
    server = await serve(script(interval_s=0.0, headers={"Set-Cookie": "replica=3; Path=/"}))
    async with ChatClient(server.endpoint) as client:
        for _ in range(2):
            await client.ask(request_body("m", PROMPT, POINT), Answer())
    assert "Cookie" not in server.headers[1]


async def test_connections_are_used_again(serve: Any, script: Any) -> None:
    server = await serve(script(interval_s=0.0))
    async with ChatClient(server.endpoint) as client:
        for _ in range(3):
            await client.ask(request_body("m", PROMPT, POINT), Answer())
    assert len(server.ports) == 3
    assert len(set(server.ports)) == 1


async def test_as_many_connections_as_asked_for(serve: Any, script: Any) -> None:
    server = await serve(script())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 300), hard))
    try:
        async with ChatClient(server.endpoint, num_connections=500):
            raised, kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised >= 500
    assert kept == hard
