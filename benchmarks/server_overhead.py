"""CPU time that the embedded engine's server spends on each streamed token, with a scripted core in place of the model.

    python benchmarks/server_overhead.py

Counted is the thread of the event loop, which does everything for a token between the engine's step and the socket; the client is a
process of its own. Short steps keep the processors awake; long ones add what waking them costs, which is dear in virtual machines.
Needs the demo model (its tokenizer): breakeven fetch smollm2-135m-instruct.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import socket
import time

import aiohttp
import uvicorn
import uvloop

from breakeven.checkpoints.cache import demo_model_path
from breakeven.drafter.serving.app import Application, Service
from breakeven.drafter.serving.loop import EngineLoop
from breakeven.drafter.serving.metrics import Exposition
from breakeven.drafter.serving.scripted import ScriptedCore
from breakeven.drafter.serving.tokenizer import TextTokenizer

TEXT = "The quick brown fox jumps over the lazy dog. " * 20


def client(url: str, num_streams: int, num_tokens: int) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = json.dumps({"prompt": "x", "max_tokens": num_tokens, "stream": True, "ignore_eos": True, "stream_options": options})

    async def read_stream(http: aiohttp.ClientSession) -> None:
        async with http.post("/v1/completions", data=body) as response:
            async for _ in response.content.iter_any():
                pass

    async def run() -> None:
        async with aiohttp.ClientSession(url) as http:
            await asyncio.gather(*(read_stream(http) for _ in range(num_streams)))

    uvloop.run(run())


async def measure(num_streams: int, num_tokens: int, *, step_s: float, tokens_per_step: int) -> float:
    """Microseconds of the event loop's CPU time per token."""
    tokenizer = TextTokenizer.from_folder(demo_model_path("smollm2-135m-instruct"))
    script = tokenizer.encode(TEXT, add_special_tokens=False)
    core = ScriptedCore(lambda request: script, step_s=step_s, tokens_per_step=tokens_per_step)
    engine = EngineLoop(core, print)
    engine.start()
    application = Application("scripted")
    application.service = Service(
        engine=engine,
        tokenizer=tokenizer,
        exposition=Exposition(lambda: engine.stats, model_name="scripted", speculating=True),
        context_length=100_000,
    )
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application.asgi, http="httptools", ws="none", lifespan="off", access_log=False, log_config=None)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    process = multiprocessing.get_context("spawn").Process(target=client, args=(url, num_streams, num_tokens))
    process.start()
    while not core.has_work:
        await asyncio.sleep(0.001)
    started_s = time.thread_time()
    await asyncio.get_running_loop().run_in_executor(None, process.join)
    spent_s = time.thread_time() - started_s
    engine.stop("done")
    server.should_exit = True
    await serving
    return 1e6 * spent_s / (num_streams * num_tokens)


def main() -> None:
    for step_s in (0.001, 0.01):
        for num_streams in (1, 8):
            for tokens_per_step in (1, 3):
                cost_us = uvloop.run(measure(num_streams, 600, step_s=step_s, tokens_per_step=tokens_per_step))
                what = f"steps of {1e3 * step_s:.0f} ms, {num_streams} streams, {tokens_per_step} tokens a step"
                print(f"{what}: {cost_us:.1f} us per token, {cost_us * tokens_per_step:.1f} us per event", flush=True)


if __name__ == "__main__":
    main()
