"""Servers told to empty their caches and to profile: what they are started with, what they answer, who refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from breakeven.engines.base import Arm
from breakeven.engines.control import ServerRequest, tell_server
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError, UsageError

Answer = tuple[int, str]
Serve = Callable[[Sequence[Answer]], Awaitable[tuple[str, list[tuple[str, object]]]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A server that gives these answers in turn, the last one for ever; and what it was sent."""
    servers: list[TestServer] = []

    async def start(answers: Sequence[Answer]) -> tuple[str, list[tuple[str, object]]]:
        seen: list[tuple[str, object]] = []

        async def handle(request: web.Request) -> web.Response:
            body = await request.read()
            seen.append((request.path, json.loads(body) if body else None))
            status, text = answers[min(len(seen), len(answers)) - 1]
            return web.Response(status=status, text=text)

        app = web.Application()
        app.router.add_post("/{tail:.*}", handle)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("")).rstrip("/"), seen

    yield start
    for server in servers:
        await server.close()


RESET = ServerRequest(path="/reset", busy_s=5.0)


@pytest.mark.parametrize("said", ["", "ok", '{"success": true}', '["success"]'])
async def test_done(serve: Serve, said: str) -> None:
    url, seen = await serve([(200, said)])
    await tell_server(url, replace(RESET, body={"a": 1}))
    assert seen == [("/reset", {"a": 1})]


@pytest.mark.parametrize("busy", [(200, '{"success": false}'), (400, "requests are running"), (503, "")])
async def test_a_busy_server_is_asked_again(serve: Serve, busy: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.engines.control.RETRY_INTERVAL_S", 0.01)
    url, seen = await serve([busy, busy, (200, "")])
    await tell_server(url, RESET)
    assert len(seen) == 3
    url, seen = await serve([busy])
    with pytest.raises(EngineError, match=r"answered \d+: .*expected it done"):
        await tell_server(url, replace(RESET, busy_s=0.1))
    assert len(seen) > 2


async def test_a_server_that_does_not_know_it_is_not_asked_again(serve: Serve) -> None:
    url, seen = await serve([(404, "")])
    with pytest.raises(EngineError, match="has no such page, or was not started with it"):
        await tell_server(url, RESET)
    assert len(seen) == 1
    with pytest.raises(EngineError, match="no answer"):
        await tell_server("http://127.0.0.1:9", RESET)


def arm(engine: str, tmp_path: Path, version: str | None = None, **more: object) -> Arm:
    program = tmp_path / "bin" / engine
    program.parent.mkdir(exist_ok=True)
    program.touch(mode=0o755)
    made = Arm(name="a", engine=engine, target=tmp_path, executable=program, engine_version=version)
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "local"])
def test_an_arm_that_asks_for_neither_is_started_as_ever(engine: str, tmp_path: Path) -> None:
    made = arm(engine, tmp_path, {"sglang": "0.5.10", "vllm": "0.20.0"}.get(engine))
    if engine == "local":
        made = replace(made, executable=None)
    command = get_engine(engine).launch_command(made, 1)
    assert not {"VLLM_SERVER_DEV_MODE", "VLLM_TORCH_PROFILER_DIR", "SGLANG_TORCH_PROFILER_DIR"} & set(command.env)
    assert "--profiler-config" not in command.argv


def test_vllm_empties_its_cache_in_development_mode(tmp_path: Path) -> None:
    vllm = get_engine("vllm")
    resetting = arm("vllm", tmp_path, "0.9.0", resets_cache=True)
    assert vllm.launch_command(resetting, 1).env["VLLM_SERVER_DEV_MODE"] == "1"
    own = replace(resetting, command=("serve.sh", "{port}"), env={"A": "b"})
    assert vllm.launch_command(own, 7).env == {"VLLM_SERVER_DEV_MODE": "1", "A": "b"}
    assert vllm.reset_request(resetting) == ServerRequest(path="/reset_prefix_cache", busy_s=30.0)


@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.8.5", False), ("0.12.0", False), ("0.13.0", True), ("0.16.0", True), ("0.33.0", True), ("0.40.0", True), (None, True)],
)
def test_vllm_is_told_at_launch_where_traces_go(version: str | None, flag: bool, tmp_path: Path) -> None:
    vllm, there = get_engine("vllm"), tmp_path / "traces"
    profiled = arm("vllm", tmp_path, version, profile_to=there)
    command = vllm.launch_command(profiled, 1)
    assert ("--profiler-config" in command.argv) == flag
    if flag:
        config = command.argv[command.argv.index("--profiler-config") + 1]
        assert json.loads(config) == {"profiler": "torch", "torch_profiler_dir": str(there)}
        assert "VLLM_TORCH_PROFILER_DIR" not in command.env
    else:
        assert command.env["VLLM_TORCH_PROFILER_DIR"] == str(there)
    assert [request.path for request in vllm.profile_requests(profiled)] == ["/start_profile", "/stop_profile"]
    with pytest.raises(UsageError, match="has a command of its own"):
        vllm.profile_requests(replace(profiled, command=("serve.sh", "{port}")))


def test_sglang_is_told_when_it_starts_to_profile(tmp_path: Path) -> None:
    sglang, there = get_engine("sglang"), tmp_path / "traces"
    profiled = arm("sglang", tmp_path, "0.5.10", profile_to=there)
    assert sglang.launch_command(profiled, 1).env["SGLANG_TORCH_PROFILER_DIR"] == str(there)
    start, stop = sglang.profile_requests(profiled)
    assert (start.path, start.body) == ("/start_profile", {"activities": ["CPU", "GPU"], "output_dir": str(there)})
    assert stop.path == "/stop_profile"
    reset = sglang.reset_request(profiled)
    assert reset is not None
    assert reset.path == "/flush_cache"


def test_the_embedded_engine_has_neither(tmp_path: Path) -> None:
    local = get_engine("local")
    assert local.reset_request(arm("local", tmp_path, resets_cache=True)) is None
    with pytest.raises(UsageError, match="the embedded engine has no profiler"):
        local.profile_requests(arm("local", tmp_path))
