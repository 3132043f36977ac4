"""Answers of a running server: the embedded one over a scripted core, and servers that misbehave in every usual way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from breakeven.drafter.data import served as served_module
from breakeven.drafter.data.answering import Collected, collect_answers
from breakeven.drafter.data.asks import AnswerSettings
from breakeven.drafter.data.prompt_records import PromptRecord, prompt_id
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.served import Served, served_model
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.serving.app import Application, Service
from breakeven.drafter.serving.loop import EngineLoop
from breakeven.drafter.serving.metrics import Exposition
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.drafter.serving.scripted import ScriptedCore
from breakeven.errors import BreakevenError, DataError, EngineError, UsageError
from breakeven.loadgen.client import Endpoint

Handler = Callable[[dict[str, Any], Request], Awaitable[Response]]


@contextlib.contextmanager
def listening(asgi: Any, beside: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext) -> Iterator[str]:
    """The URL of `asgi`, served from another thread: the code under test runs a loop of its own. `beside` lives in that loop."""
    server = uvicorn.Server(uvicorn.Config(asgi, lifespan="off", log_config=None, http="httptools", ws="none"))
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    port = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        with beside():
            await server.serve(sockets=[port])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield f"http://127.0.0.1:{port.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@contextlib.contextmanager
def embedded(target: TargetFiles, text: str) -> Iterator[str]:
    """The embedded engine's server, whose model says `text` to everything."""
    written = [*target.encode(text), *target.stop_token_ids]
    application = Application("tiny")

    def script(_request: GenerationRequest) -> list[int]:
        return written

    @contextlib.contextmanager
    def engine() -> Iterator[None]:
        loop = EngineLoop(ScriptedCore(script), lambda _failure: None)
        loop.start()
        application.service = Service(
            engine=loop,
            tokenizer=target.tokenizer,
            exposition=Exposition(lambda: loop.stats, model_name="tiny", speculating=False),
            context_length=target.context_length,
            stop_token_ids=target.stop_token_ids,
        )
        try:
            yield
        finally:
            loop.stop("the test is over")
            assert loop.join(5)

    with listening(application.asgi, engine) as url:
        while application.service is None:
            time.sleep(0.01)
        yield url


@contextlib.contextmanager
def scripted(handler: Handler) -> Iterator[str]:
    async def chat(request: Request) -> Response:
        return await handler(orjson.loads(await request.body()), request)

    async def models(_request: Request) -> Response:
        return reply({"data": [{"id": "one"}]})

    routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models)]
    with listening(Starlette(routes=routes)) as url:
        yield url


def reply(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def completion(text: str = "yes", **changes: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [choice | changes.pop("choice", {})], **changes}


def prompts(count: int) -> list[PromptRecord]:
    records = []
    for number in range(count):
        messages = ({"role": "user", "content": f"Question {number}?"},)
        records.append(PromptRecord(id=prompt_id(messages), kind="custom", messages=messages, split="train", source="file"))
    return records


def collect(
    path: Path, url: str, target: TargetFiles | None, *, count: int = 20, key: str | None = None, **options: Any
) -> Collected:
    endpoint = Endpoint(url=url, model="tiny", api_key_env=key)
    source = Served(endpoint, max_tokens=40, target=target, **options)
    return collect_answers(path, prompts(count), AnswerSettings(max_tokens=40), source, target=target)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_module, "BACKOFF_S", 0.001)


@pytest.mark.parametrize("with_folder", [True, False])
def test_the_embedded_engine_gives_exact_ids(
    tmp_path: Path, make_chat_target: Callable[..., TargetFiles], with_folder: bool
) -> None:
    target = make_chat_target()
    path = tmp_path / "train.jsonl"
    with embedded(target, "well, yes") as url:
        assert served_model(url, api_key_env=None) == "tiny"
        found = collect(path, url + "/v1", target if with_folder else None)
    assert (found.num_answers, found.skipped) == (20, {})
    records = [orjson.loads(line) for line in path.read_bytes().splitlines()[1:]]
    assert {record["tokens"] for record in records} == {"exact"}
    expected = {record.id: record for record in prompts(20)}
    for sample in read_samples(path, split="train", target=target):
        prompt = target.prompt_ids(expected[sample.sample_id].messages)
        assert sample.token_ids == (*prompt, *target.encode("well, yes"), *target.stop_token_ids)
        assert sample.num_prompt_tokens == len(prompt)


def test_ids_as_sglang_gives_them(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target, path = make_chat_target(), tmp_path / "train.jsonl"
    (stop,) = target.stop_token_ids

    async def handler(body: dict[str, Any], _request: Request) -> Response:
        choice = {
            "prompt_token_ids": list(target.prompt_ids(body["messages"])),
            "response_token_ids": list(target.encode("yes")),
            "matched_stop": stop,
        }
        return reply(completion("yes", choice=choice))

    with scripted(handler) as url:
        collect(path, url, None)
    for sample in read_samples(path, split="train", target=target):
        assert sample.token_ids[sample.num_prompt_tokens :] == (*target.encode("yes"), stop)


def test_answers_of_a_server_without_ids_are_rendered(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target = make_chat_target("thinking")
    path = tmp_path / "train.jsonl"
    bodies: list[dict[str, Any]] = []

    async def handler(body: dict[str, Any], _request: Request) -> Response:
        bodies.append(body)
        return reply(completion("yes", choice={"message": {"content": "yes", "reasoning_content": "hm"}}))

    with scripted(handler) as url:
        found = collect(path, url, target, template_variables={"enable_thinking": True})
    assert found.num_answers == 20
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": True}
    assert {body["temperature"] for body in bodies} == {0.0, 0.7}
    record = orjson.loads(path.read_bytes().splitlines()[1])
    assert record["tokens"] == "rendered"
    assert record["messages"][-1] == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    text = target.tokenizer.text_of(record["token_ids"][record["num_prompt_tokens"] :])
    assert text == "<think>\nhm\n</think>\n\nyes"


def test_a_passing_fault_is_passed_over(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    seen: dict[str, int] = {}

    async def handler(body: dict[str, Any], _request: Request) -> Response:
        question = body["messages"][0]["content"]
        seen[question] = seen.get(question, 0) + 1
        if seen[question] == 1:
            return [Response("busy", 503), Response("{", 200), reply([]), reply({"choices": []}), reply({}, 429)][len(seen) % 5]
        return reply(completion())

    with scripted(handler) as url:
        assert collect(tmp_path / "t.jsonl", url, make_chat_target()).num_answers == 20
    assert set(seen.values()) == {2}


def test_prompts_that_are_refused_are_left_out_and_not_asked_again(
    tmp_path: Path, make_chat_target: Callable[..., TargetFiles]
) -> None:
    target, path = make_chat_target(), tmp_path / "t.jsonl"
    num_asked = 0

    async def handler(body: dict[str, Any], _request: Request) -> Response:
        nonlocal num_asked
        num_asked += 1
        if body["messages"][0]["content"] == "Question 7?":
            return reply({"error": {"message": "too long\x1b[31m"}}, 400)
        return reply(completion())

    with scripted(handler) as url:
        found = collect(path, url, target, concurrency=3)
        assert found.num_answers == 19
        assert found.skipped == {"HTTP 400: too long [31m": 1}
        assert collect(path, url, target).num_new == 0
    assert num_asked == 20


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: reply({"error": {"message": "no such model"}}, 404), "HTTP 404: no such model"),
        (lambda: reply({"error": "key k-secret is wrong"}, 401), r"HTTP 401: key \[API key\] is wrong"),
        (lambda: reply({"message": "unknown field"}, 400), "refused the first 8 requests, the last with HTTP 400: unknown field"),
        (lambda: Response("down", 500), "HTTP 500: down, 5 times for the same prompt; the answers so far are kept"),
        (lambda: reply(completion(choice={"message": {"content": 5}})), "not a chat completion"),
        (lambda: reply(completion(choice={"token_ids": ["a"]})), "not a chat completion"),
        (lambda: reply(completion(usage={"prompt_tokens": 3})), "renders prompts in another way .*into 3 tokens there"),
        (
            lambda: reply(completion(choice={"token_ids": [5000]})),
            "none of the first 8 answers can be used.*token id 5000 lies outside",
        ),
        (lambda: reply(completion(choice={"token_ids": [5] * 41})), "41 tokens where 40 were asked for at most"),
        (lambda: reply(completion(usage={"completion_tokens": 41})), "41 tokens where 40 were asked for at most"),
        (lambda: reply(completion(prompt_token_ids=[1, 2])), "renders prompts in another way .*from token 0 on"),
    ],
)
def test_a_server_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path,
    make_chat_target: Callable[..., TargetFiles],
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[], Response],
    message: str,
) -> None:
    monkeypatch.setenv("THE_KEY", "k-secret")
    keys: list[str | None] = []

    async def handler(_body: dict[str, Any], request: Request) -> Response:
        keys.append(request.headers.get("authorization"))
        return answer()

    path = tmp_path / "t.jsonl"
    with scripted(handler) as url, pytest.raises((EngineError, DataError, UsageError), match=message) as told:
        collect(path, url, make_chat_target(), key="THE_KEY")
    # the server does what it was started for; the folder beside it is the user's to mend
    assert ("renders prompts" in message) == isinstance(told.value, UsageError)
    assert set(keys) == {"Bearer k-secret"}
    assert b"k-secret" not in path.read_bytes()


def test_what_came_before_a_server_died_is_kept(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    target, path = make_chat_target(), tmp_path / "t.jsonl"
    num_asked = 0

    async def handler(_body: dict[str, Any], _request: Request) -> Response:
        nonlocal num_asked
        num_asked += 1
        return reply(completion()) if num_asked <= 9 else Response("gone", 503)

    with scripted(handler) as url, pytest.raises(EngineError, match="HTTP 503"):
        collect(path, url, target, concurrency=2)
    assert len(list(read_samples(path, split="train", target=target))) == 9

    async def well(_body: dict[str, Any], _request: Request) -> Response:
        return reply(completion())

    with scripted(well) as url:
        assert collect(path, url, target).num_new == 11


def test_nobody_there_and_several_models(tmp_path: Path, make_chat_target: Callable[..., TargetFiles]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port:
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
    with pytest.raises(EngineError, match="cannot be reached"):
        served_model(url, api_key_env=None)
    with pytest.raises(EngineError, match="no answer"):
        collect(tmp_path / "t.jsonl", url, make_chat_target())

    async def models(_request: Request) -> Response:
        return reply({"data": [{"id": "a"}, {"id": "b"}]})

    async def odd(_request: Request) -> Response:
        return reply(["a"])

    several = r"offers 2 models \(a, b\); say which with --model"
    with listening(Starlette(routes=[Route("/v1/models", models)])) as url, pytest.raises(UsageError, match=several):
        served_model(url, api_key_env=None)
    with listening(Starlette(routes=[Route("/v1/models", odd)])) as url, pytest.raises(EngineError, match="something else"):
        served_model(url, api_key_env=None)
    with listening(Starlette()) as url, pytest.raises(BreakevenError, match="HTTP 404 for the list of models"):
        served_model(url, api_key_env=None)
