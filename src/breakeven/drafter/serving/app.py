"""The HTTP face of the engine: routes, checks, and the way of each answer from the engine's chunks to the client."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import Literal

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from breakeven import __version__
from breakeven.drafter.serving.answers import AnswerOptions, EngineResponse
from breakeven.drafter.serving.loop import EngineLoop
from breakeven.drafter.serving.metrics import Exposition
from breakeven.drafter.serving.openai import ChatRequest, CompletionRequest, Reply, RequestBody, error_body, parse_body
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.drafter.serving.streaming import TextStream
from breakeven.drafter.serving.tokenizer import TextTokenizer
from breakeven.errors import BreakevenError, EngineError, UsageError

__all__ = ["Application", "Service"]

logger = logging.getLogger(__name__)

# Far beyond the contexts served here. Tokenizing takes 60 bytes of memory for one of text, so this bounds what a request costs.
MAX_BODY_BYTES = 4_000_000
MAX_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A loaded engine and what requests to it need.

    `stop_token_ids` come from the generation config, beside those the core knows from the model's own. `temperature` and `top_p`
    are the generation config's defaults.
    """

    engine: EngineLoop
    tokenizer: TextTokenizer
    exposition: Exposition
    context_length: int
    stop_token_ids: frozenset[int] = frozenset()
    temperature: float = 1.0
    top_p: float = 1.0


class Application:
    """The ASGI app `asgi`. `service` is set once the model is loaded; until then `/health` answers 503."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self.service: Service | None = None
        self._created = int(time.time())
        self._ignored_fields: set[str] = set()
        self.asgi = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/version", self._version),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/completions", self._completion, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _http_error, BreakevenError: _our_error, ClientDisconnect: _nobody_there},
        )

    def _ready(self) -> Service:
        if self.service is None:
            raise HTTPException(503, "the model is still loading: try again in a moment")
        return self.service

    async def _health(self, _request: Request) -> Response:
        failure = self._ready().engine.failure
        if failure is not None:
            raise failure
        return Response()

    async def _metrics(self, _request: Request) -> Response:
        return Response(self._ready().exposition.text(), media_type="text/plain; version=0.0.4")

    async def _version(self, _request: Request) -> Response:
        return _json({"version": __version__})

    async def _models(self, _request: Request) -> Response:
        model = {
            "id": self.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "breakeven",
            "root": self.model_name,
            "parent": None,
            "max_model_len": self._ready().context_length,
        }
        return _json({"object": "list", "data": [model]})

    async def _chat(self, request: Request) -> Response:
        service = self._ready()
        body = parse_body(await _body(request), ChatRequest)
        self._check_model(body)
        prompt_ids = service.tokenizer.encode_chat([message.for_template() for message in body.messages])
        return self._answer(service, body, prompt_ids, "chat")

    async def _completion(self, request: Request) -> Response:
        service = self._ready()
        body = parse_body(await _body(request), CompletionRequest)
        self._check_model(body)
        prompt = body.single_prompt()
        if isinstance(prompt, str):
            prompt_ids = service.tokenizer.encode(prompt, add_special_tokens=body.add_special_tokens)
        else:
            prompt_ids = tuple(prompt)
        return self._answer(service, body, prompt_ids, "text")

    def _check_model(self, body: RequestBody) -> None:
        if body.model is not None and body.model != self.model_name:
            raise HTTPException(404, f"The model `{body.model[:MAX_SHOWN]}` does not exist; this server has `{self.model_name}`.")
        for name in set(body.model_extra or ()) - self._ignored_fields:
            self._ignored_fields.add(name)
            logger.warning("Request field %.80r is not used by this server (said once)", name)

    def _answer(self, service: Service, body: RequestBody, prompt_ids: tuple[int, ...], kind: Literal["chat", "text"]) -> Response:
        reply_id = f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{uuid.uuid4().hex}"
        request = _generation_request(service, body, prompt_ids, reply_id)
        reply = Reply(
            kind=kind, reply_id=reply_id, model=self.model_name, created=int(time.time()), num_prompt_tokens=len(prompt_ids)
        )
        return EngineResponse(
            service.engine,
            service.exposition,
            request,
            TextStream(service.tokenizer.token_bytes, body.stop_strings),
            reply,
            AnswerOptions(
                streamed=body.stream,
                usage_at_end=body.stream_options is not None and body.stream_options.include_usage,
                usage_in_chunks=body.stream_options is not None and body.stream_options.continuous_usage_stats,
                with_token_ids=body.return_token_ids,
            ),
        )


async def _body(request: Request) -> bytes:
    """The whole body, never more of it in memory than is accepted.

    Raises:
        HTTPException: it is longer than `MAX_BODY_BYTES`.
    """
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the request is longer than {MAX_BODY_BYTES} bytes: shorten the prompt")
    return bytes(received)


def _generation_request(service: Service, body: RequestBody, prompt_ids: tuple[int, ...], request_id: str) -> GenerationRequest:
    """What the core is asked for.

    Raises:
        UsageError: the prompt is empty, or prompt and answer do not fit into the context.
    """
    if not prompt_ids:
        raise UsageError("the prompt is empty: expected at least one token")
    room = service.context_length - len(prompt_ids)
    wanted = body.token_limit
    if room < 1 or (wanted is not None and wanted > room):
        asked = f"{len(prompt_ids)} in the prompt and {1 if wanted is None else wanted} in the answer"
        raise UsageError(
            f"This model's maximum context length is {service.context_length} tokens, but {asked} were requested: "
            "shorten the prompt or max_tokens, or start the server with a larger --context-length"
        )
    own_stops = frozenset(body.stop_token_ids or ())
    return GenerationRequest(
        request_id=request_id,
        prompt_ids=prompt_ids,
        max_tokens=wanted if wanted is not None else room,
        temperature=body.temperature if body.temperature is not None else service.temperature,
        top_p=body.top_p if body.top_p is not None else service.top_p,
        seed=body.seed,
        ignore_eos=body.ignore_eos,
        stop_token_ids=own_stops if body.ignore_eos else own_stops | service.stop_token_ids,
    )


def _json(content: object) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")


def _error(message: str, status: int, kind: str) -> Response:
    return Response(error_body(message, status, kind), status, media_type="application/json")


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds = {404: "NotFoundError", 405: "MethodNotAllowedError", 503: "ServiceUnavailableError"}
    return _error(error.detail, error.status_code, kinds.get(error.status_code, "BadRequestError"))


async def _nobody_there(_request: Request, _error: Exception) -> Response:
    # a client that leaves in the middle of its request is no fault of the server: nothing in the log, nobody reads the answer
    return Response(status_code=499)


async def _our_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, EngineError):
        return _error(str(error), 500, "InternalServerError")
    return _error(str(error), 400, "BadRequestError")
