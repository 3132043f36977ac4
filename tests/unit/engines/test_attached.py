from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from breakeven.engines.attached import Scraper, check_attached, root_url
from breakeven.engines.base import Arm
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError, LaunchError, UsageError

LOCAL = get_engine("local")
METRICS = """\
vllm:prompt_tokens_total 10
vllm:generation_tokens_total 20
vllm:num_requests_running 1
vllm:num_requests_waiting 0
breakeven:decode_steps_total 19
"""
MODELS = '{"data": [{"id": "m"}, {"id": "n"}]}'
Answers = Mapping[str, str | tuple[int, dict[str, str]]]
Serve = Callable[..., Awaitable[TestServer]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A server with these answers by path; with `key`, only to requests that bring it."""
    servers: list[TestServer] = []

    async def start(answers: Answers | None = None, key: str | None = None, seen: list[str] | None = None) -> TestServer:
        table: Answers = {"/v1/models": MODELS, "/metrics": METRICS, "/health": ""} | dict(answers or {})

        async def answer(request: web.Request) -> web.StreamResponse:
            if seen is not None:
                seen.append(request.path)
            if key is not None and request.headers.get("Authorization") != f"Bearer {key}":
                return web.Response(status=401)
            found = table.get(request.path)
            if found is None:
                return web.Response(status=404)
            return web.Response(text=found) if isinstance(found, str) else web.Response(status=found[0], headers=found[1])

        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return server

    yield start
    await asyncio.gather(*(server.close() for server in servers))


def url_of(server: TestServer) -> str:
    return str(server.make_url("")).rstrip("/")


def arm(server: TestServer, served_name: str | None = None, metrics_urls: tuple[str, ...] = (), key: str | None = None) -> Arm:
    return Arm(
        name="a",
        engine="local",
        url=url_of(server) + "/v1",
        served_name=served_name,
        metrics_urls=metrics_urls,
        api_key_env=key,
    )


async def test_what_is_served_and_counted(serve: Serve) -> None:
    server = await serve()
    assert await check_attached(arm(server), LOCAL) == ("m", True)
    assert await check_attached(arm(server, "n"), LOCAL) == ("n", True)
    async with Scraper(LOCAL, url_of(server)) as scraper:
        assert "decode_steps" in await scraper.metrics_text()


async def test_replicas_are_summed(serve: Serve) -> None:
    first, second = await serve(), await serve({"/metrics": METRICS.replace(" 20", " 500")})
    async with Scraper(LOCAL, url_of(first), [f"{url_of(first)}/metrics", f"{url_of(second)}/metrics"]) as scraper:
        counters = await scraper.counters()
    assert (counters.generation_tokens, counters.num_running) == (520, 2)


async def test_a_gateway_without_metrics_still_serves(serve: Serve) -> None:
    server = await serve({"/metrics": (404, {})})
    assert await check_attached(arm(server), LOCAL) == ("m", False)
    with pytest.raises(LaunchError, match=r"arm a: .*/metrics answered 404; expected 200"):
        await check_attached(arm(server, metrics_urls=(f"{url_of(server)}/metrics",)), LOCAL)


async def test_metrics_of_another_engine_are_no_counters(serve: Serve) -> None:
    server = await serve({"/metrics": "sglang:num_running_reqs 1\n"})
    assert await check_attached(arm(server), LOCAL) == ("m", False)


async def test_the_key_comes_from_the_environment_and_goes_nowhere_else(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await serve(key="s3cret")
    with pytest.raises(LaunchError, match=r"answered 401 to a request without a key: name api_key_env"):
        await check_attached(arm(server), LOCAL)
    with pytest.raises(UsageError, match=r"\$THE_KEY is not set"):
        await check_attached(arm(server, key="THE_KEY"), LOCAL)
    monkeypatch.setenv("THE_KEY", "wrong-s3cret")
    with pytest.raises(LaunchError, match=r"answered 401 to the key in \$THE_KEY") as caught:
        await check_attached(arm(server, key="THE_KEY"), LOCAL)
    assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("THE_KEY", "s3cret")
    assert await check_attached(arm(server, key="THE_KEY"), LOCAL) == ("m", True)
    monkeypatch.setenv("THE_KEY", "a\r\nX-Injected: 1")
    with pytest.raises(UsageError, match="not a key"):
        await check_attached(arm(server, key="THE_KEY"), LOCAL)


async def test_redirects_are_not_followed_since_they_would_carry_the_key(serve: Serve) -> None:
    seen: list[str] = []
    elsewhere = await serve(seen=seen)
    server = await serve({"/v1/models": (307, {"Location": f"{url_of(elsewhere)}/v1/models"})})
    with pytest.raises(LaunchError, match="answered 307; expected 200"):
        await check_attached(arm(server), LOCAL)
    assert seen == []


@pytest.mark.parametrize(
    ("models", "served_name", "complaint"),
    [
        (MODELS, "other", "serves 'm', 'n'; expected 'other'"),
        ('{"data": []}', None, "serves no model"),
        ('{"data": []}', "m", "serves nothing; expected 'm'"),
        ("<html>", None, "lists no models; expected an OpenAI-compatible server"),
        ('{"data": [3]}', None, "lists no models"),
        ("[]", None, "lists no models"),
        ('{"data": [{"id": "\\u001b[2J"}]}', "m", r"serves '\\x1b\[2J'"),
    ],
)
async def test_servers_that_do_not_serve_the_model(models: str, served_name: str | None, complaint: str, serve: Serve) -> None:
    server = await serve({"/v1/models": models})
    with pytest.raises(LaunchError, match=complaint):
        await check_attached(arm(server, served_name), LOCAL)


async def test_a_server_that_is_not_there(serve: Serve) -> None:
    server = await serve()
    gone = arm(server)
    await server.close()
    with pytest.raises(LaunchError, match=r"does not answer .*is the server up"):
        await check_attached(gone, LOCAL)


async def test_a_body_that_comes_in_pieces_is_read_whole(serve: Serve) -> None:
    long = METRICS + "".join(f'other_metric{{n="{n}"}} 1\n' for n in range(40_000)) + "vllm:num_preemptions_total 4\n"
    server = await serve({"/metrics": long})
    async with Scraper(LOCAL, url_of(server)) as scraper:
        assert (await scraper.counters()).num_preemptions == 4


@pytest.mark.parametrize("url", ["http://h:1/v1", "http://h:1/v1/", "http://h:1/", "http://h:1"])
def test_roots(url: str) -> None:
    assert root_url(url) == "http://h:1"


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "file:///etc/passwd", "http://", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError, match="expected http://HOST:PORT"):
        root_url(url)


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError, match="the URL of h holds a user or password") as caught:
        root_url("https://me:hunter2@h/v1")
    assert "hunter2" not in str(caught.value)


async def test_an_arm_without_a_url_is_not_attached() -> None:
    with pytest.raises(UsageError, match="no url"):
        await check_attached(Arm(name="a", engine="local"), LOCAL)


async def test_counters_that_do_not_answer_are_an_engine_error(serve: Serve) -> None:
    server = await serve({"/metrics": (500, {})})
    async with Scraper(LOCAL, url_of(server)) as scraper:
        with pytest.raises(EngineError, match="answered 500"):
            await scraper.counters()
