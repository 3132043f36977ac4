"""The server process: the port first, then the model in a thread while `/health` answers 503, then requests until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
import uvloop

from breakeven import __version__
from breakeven.drafter.serving.app import Application, Service
from breakeven.drafter.serving.loading import Loaded, load
from breakeven.drafter.serving.loop import EngineLoop
from breakeven.drafter.serving.metrics import Exposition, IntervalLog
from breakeven.drafter.serving.options import ServerOptions
from breakeven.errors import EngineError

__all__ = ["serve"]

logger = logging.getLogger(__name__)

# What its log begins with: the rest is worded as vLLM words its own.
NAME = "Breakeven's embedded engine"

LOG_INTERVAL_S = 10.0
# Together they keep the time from a signal to the end under two seconds, whatever the engine is doing.
DRAIN_S = 1
JOIN_S = 0.5


def serve(options: ServerOptions, started_s: float) -> None:
    """Serve until SIGTERM or SIGINT. `started_s`: when the process started, by time.monotonic.

    Raises:
        EngineError: the port is taken.
        BreakevenError: the model or the drafter cannot be loaded.
    """
    listening = _listen(options.host, options.port)
    with listening:
        uvloop.run(_serve(options, listening, started_s))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    # a port whose last connections are still in TIME_WAIT counts as free; one that is listened on does not
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise EngineError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or end what uses it"
        ) from error
    return listening


class _HttpServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are handled by `_serve`, which has an engine to stop as well


async def _serve(options: ServerOptions, listening: socket.socket, started_s: float) -> None:
    application = Application(options.model_name)
    http = _HttpServer(
        uvicorn.Config(
            application.asgi,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            server_header=False,
            log_config=None,
            timeout_graceful_shutdown=DRAIN_S,
            # longer than clients keep idle connections (aiohttp: 15 s), so that none is closed just as a request goes out on it
            timeout_keep_alive=60,
        )
    )
    logger.info("%s %s", NAME, __version__)
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    serving: asyncio.Future[Any] = asyncio.ensure_future(http.serve(sockets=[listening]))
    stopping: asyncio.Future[Any] = asyncio.ensure_future(signalled.wait())
    loading: asyncio.Future[Any] = _load_in_thread(options)
    engine: EngineLoop | None = None
    try:
        await asyncio.wait([serving, stopping, loading], return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loaded = loading.result()
            engine = _start_engine(application, options, loaded)
            host, port = listening.getsockname()[:2]
            logger.info("%s", loaded.description)
            where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            logger.info("Ready on http://%s after %.1f s", where, time.monotonic() - started_s)
            log = asyncio.create_task(_log_intervals(engine))
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            log.cancel()
    finally:
        if engine is not None:
            engine.stop("the server is shutting down")
        http.should_exit = True
        await serving
        stopping.cancel()
    if loading.done() and (engine is None or engine.join(JOIN_S)):
        logger.info("Stopped")
    else:
        logger.info("Stopped in the middle of %s", "a step" if loading.done() else "loading")
    logging.shutdown()
    # The interpreter's own end frees the model piece by piece, and waits for or crashes on a thread that is inside torch.
    os._exit(0)


def _load_in_thread(options: ServerOptions) -> asyncio.Future[Loaded]:
    """Not an executor: the interpreter waits for an executor's threads at its end, however long they load."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Loaded] = loop.create_future()

    def settle(loaded: Loaded | None, error: Exception | None) -> None:
        if not future.cancelled():
            future.set_exception(error) if error is not None else future.set_result(loaded)  # type: ignore[arg-type]

    def run() -> None:
        loaded, failure = None, None
        try:
            loaded = load(options)
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the event loop has closed: the process is ending
            loop.call_soon_threadsafe(settle, loaded, failure)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return future


def _start_engine(application: Application, options: ServerOptions, loaded: Loaded) -> EngineLoop:
    def report(error: BaseException) -> None:
        logger.error("The engine failed; /health answers 500 from now on", exc_info=error)

    engine = EngineLoop(loaded.core, report)
    engine.start()
    application.service = Service(
        engine=engine,
        tokenizer=loaded.tokenizer,
        exposition=Exposition(lambda: engine.stats, model_name=options.model_name, speculating=options.method is not None),
        context_length=loaded.context_length,
        stop_token_ids=loaded.generation.eos_token_ids,
        temperature=loaded.generation.temperature,
        top_p=loaded.generation.top_p,
    )
    return engine


async def _log_intervals(engine: EngineLoop) -> None:
    interval_log = IntervalLog(engine.stats)
    while True:
        await asyncio.sleep(LOG_INTERVAL_S)
        interval_log.write(engine.stats)
