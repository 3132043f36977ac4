"""What a streamed event costs the load client: ours against the clients people use.

    python benchmarks/load_client.py                              # 256 streams, 10 000 events/s offered, three rounds
    python benchmarks/load_client.py --rates 2000 20000 --clients breakeven httpx

A mock server in a process of its own sends server-sent events at a fixed rate. Each client gets a fresh process, one after the
other, rounds interleaved, server and clients pinned to different cores where the system can. Printed: events delivered a second,
CPU microseconds an event, and how late the client's event loop wakes up (99th percentile): a client that cannot keep up delivers
less, or late. Medians of the rounds, and ratios to ours, which are all that carries over to another machine. On a busy machine
events arrive in bunches and cost less each, most of all for slow clients: run it on an idle one.

`breakeven` is `run_load` whole: counts, time stamps, text, health. `aiohttp+json` and `httpx` do what is usual: one session, lines,
json, a time stamp. `httptools+orjson` is the least that Python can do. httpx is measured where it is installed (Breakeven does not
need it).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import uvloop

from breakeven.loadgen.client import Endpoint, request_body
from breakeven.loadgen.health import LoopWatch
from breakeven.loadgen.measures import tokens_in_window
from breakeven.loadgen.run import run_load
from breakeven.loadgen.samples import LoadPoint, Prompt

CLIENTS = ("breakeven", "aiohttp+orjson", "aiohttp+json", "httptools+orjson", "httpx")
MAX_TOKENS = 400
WARMUP_S = 2.0
PROMPT = Prompt(id="mock", kind="chat", messages=(("user", "Tell me something. " * 20),))


class MockServer(asyncio.Protocol):
    """Just enough HTTP: any complete request is answered with MAX_TOKENS events, one every `interval_s`."""

    event = (
        'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1750000000,"model":"mock","choices":'
        '[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":%s}],'
        '"usage":{"prompt_tokens":100,"total_tokens":%d,"completion_tokens":%d}}\n\n'
    )

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.received = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            self.received = b""
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.num_sent, self.due_s = 0, asyncio.get_running_loop().time()
            self.wait()

    def wait(self) -> None:
        self.due_s += self.interval_s
        self.timer = asyncio.get_running_loop().call_at(self.due_s, self.send)

    def send(self) -> None:
        self.num_sent += 1
        last = self.num_sent == MAX_TOKENS
        event = self.event % ('"length"' if last else "null", 100 + self.num_sent, self.num_sent)
        payload = (event + ("data: [DONE]\n\n" if last else "")).encode()
        self.transport.write(b"%x\r\n%b\r\n" % (len(payload), payload) + (b"0\r\n\r\n" if last else b""))
        if not last:
            self.wait()


async def serve(interval_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: MockServer(interval_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@dataclass
class Count:
    """What the plain clients keep: a time stamp and a count for every event."""

    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def take(self, event: dict) -> None:
        self.arrivals.append((time.perf_counter(), event["usage"]["completion_tokens"]))


async def with_breakeven(url: str, streams: int, window_s: float) -> dict[str, float]:
    cpu: list[float] = []

    async def note_cpu() -> None:
        cpu.append(time.process_time())

    result = await run_load(
        Endpoint(url=url, model="mock"),
        LoadPoint(concurrency=streams, max_tokens=MAX_TOKENS),
        [PROMPT],
        seed=0,
        warmup_s=WARMUP_S,
        window_s=window_s,
        on_window_start=note_cpu,
        on_window_end=note_cpu,
    )
    return figures(tokens_in_window(result), window_s, cpu[1] - cpu[0], result.health.loop_lag_p99_s)


async def with_slots(ask: Callable[[Count], Awaitable[None]], streams: int, window_s: float) -> dict[str, float]:
    """Closed loop for the plain clients: `ask` again and again on every stream, measured as `run_load` measures."""
    counts: list[Count] = []

    async def slot() -> None:
        while True:
            counts.append(Count())
            await ask(counts[-1])

    slots = [asyncio.create_task(slot()) for _ in range(streams)]
    await asyncio.sleep(WARMUP_S)
    watch = LoopWatch()
    watch.start()
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.sleep(window_s)
    ended_s, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    watch.stop()
    for task in slots:
        task.cancel()
    await asyncio.gather(*slots, return_exceptions=True)
    events = sum(begun_s < time_s <= ended_s for count in counts for time_s, _ in count.arrivals)
    return figures(events, ended_s - begun_s, cpu_s, watch.health().loop_lag_p99_s)


def figures(events: int, window_s: float, cpu_s: float, lag_s: float) -> dict[str, float]:
    return {"events_per_s": events / window_s, "cpu_us": cpu_s / max(events, 1) * 1e6, "lag_ms": lag_s * 1e3}


async def with_aiohttp(url: str, streams: int, window_s: float, loads: Callable[[bytes], dict]) -> dict[str, float]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def ask(count: Count) -> None:
            async with session.post(url + "/v1/chat/completions", data=BODY) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        count.take(loads(line[6:]))

        return await with_slots(ask, streams, window_s)


async def with_httpx(url: str, streams: int, window_s: float) -> dict[str, float]:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def ask(count: Count) -> None:
            async with client.stream("POST", url + "/v1/chat/completions", content=BODY) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        count.take(json.loads(line[6:]))

        return await with_slots(ask, streams, window_s)


class HttptoolsConnection(asyncio.Protocol):
    """The least that Python can do per event: no task wakes up, the parser's callback does the work."""

    def __init__(self) -> None:
        import httptools
        import orjson

        self.parser_of, self.loads = httptools.HttpResponseParser, orjson.loads

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def ask(self, count: Count) -> asyncio.Future[None]:
        self.count, self.parser = count, self.parser_of(self)
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: mock\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
        )
        return self.complete

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        for line in body.split(b"\n"):
            if line.startswith(b"data: {"):
                self.count.take(self.loads(line[6:]))

    def on_message_complete(self) -> None:
        self.complete.set_result(None)


async def with_httptools(url: str, streams: int, window_s: float) -> dict[str, float]:
    loop, port = asyncio.get_running_loop(), int(url.rpartition(":")[2])
    idle = [(await loop.create_connection(HttptoolsConnection, "127.0.0.1", port))[1] for _ in range(streams)]

    async def ask(count: Count) -> None:
        connection = idle.pop()
        await connection.ask(count)
        idle.append(connection)

    return await with_slots(ask, streams, window_s)


BODY = request_body("mock", PROMPT, LoadPoint(concurrency=1, max_tokens=MAX_TOKENS))


def client(name: str, url: str, streams: int, window_s: float) -> Awaitable[dict[str, float]]:
    import orjson

    match name:
        case "breakeven":
            return with_breakeven(url, streams, window_s)
        case "aiohttp+orjson":
            return with_aiohttp(url, streams, window_s, orjson.loads)
        case "aiohttp+json":
            return with_aiohttp(url, streams, window_s, json.loads)
        case "httptools+orjson":
            return with_httptools(url, streams, window_s)
        case _:
            return with_httpx(url, streams, window_s)


def pin(core: int) -> None:
    """Keep this process on one core where the system can (Linux) and has one to spare."""
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})


def measure(name: str, interval_s: float, streams: int, window_s: float) -> dict[str, float]:
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(interval_s)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        asked = [sys.executable, __file__, "--client", name, "--url", url, "--streams", str(streams), "--window", str(window_s)]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU per streamed event of load clients")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--rates", nargs="+", type=float, default=[10_000.0], help="events a second offered over all streams")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--window", type=float, default=5.0, help="seconds measured a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        pin(-1)
        uvloop.run(serve(options.serve))
        return
    if options.client is not None:
        pin(0)
        print(json.dumps(uvloop.run(client(options.client, options.url, options.streams, options.window))))
        return
    names = [name for name in options.clients if importlib.util.find_spec(name.partition("+")[0])]
    for missing in sorted(set(options.clients) - set(names)):
        print(f"{missing} is left out: not installed here (pip install {missing.partition('+')[0]})")
    for rate in options.rates:
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                rounds[name].append(measure(name, options.streams / rate, options.streams, options.window))
        print(
            f"\n{options.streams} streams, {rate:,.0f} events/s offered, medians of {options.rounds} rounds (lowest to highest CPU)"
        )
        print(f"| {'client':16} | CPU us/event      | ratio to ours | delivered events/s | loop lag p99 ms |")
        print(f"|{'-' * 18}|-------------------|---------------|--------------------|-----------------|")
        ours = statistics.median(found["cpu_us"] for found in rounds[names[0]])
        for name in names:
            cpu_us, per_s, lag_ms = (sorted(found[key] for found in rounds[name]) for key in ("cpu_us", "events_per_s", "lag_ms"))
            spread = f"{statistics.median(cpu_us):.0f} ({cpu_us[0]:.0f} to {cpu_us[-1]:.0f})"
            ratio, delivered, lag = statistics.median(cpu_us) / ours, statistics.median(per_s), statistics.median(lag_ms)
            print(f"| {name:16} | {spread:17} | {ratio:13.2f} | {delivered:18,.0f} | {lag:15.0f} |")


if __name__ == "__main__":
    main()
