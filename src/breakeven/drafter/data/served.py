"""Answers of a running OpenAI-compatible server: many requests under way, exact token ids where the server gives them.

vLLM, SGLang and the embedded engine take `return_token_ids`. Servers that do not know it ignore it; their answers are rendered
again with the target's own template, which is said in every line. Where the server shows how it rendered the prompt, or only
counts its tokens, that is held against the folder's template: another template would teach the drafter prompts that it never meets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from breakeven.drafter.data.asks import Answer, Ask
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import EngineError, UsageError
from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.stream import printable

__all__ = ["Served", "served_model"]

CONNECT_TIMEOUT_S = 30.0
# Servers close idle connections after 5 s or more: ours go first.
KEEPALIVE_S = 2.0
# An answer of thousands of tokens behind a full queue takes minutes; a server that says nothing for this long is gone.
ANSWER_TIMEOUT_S = 1800.0
MAX_ANSWER_BYTES = 64_000_000
ATTEMPTS = 5
BACKOFF_S = 0.5
# Refused prompts are noted and left out; when the first ones are all refused, it is the request that is wrong.
REFUSALS_AT_START = 8
_REFUSED = (400, 413, 422)
_WORTH_AGAIN = (408, 429, 500, 502, 503, 504)


class _Again(Exception):
    """Went wrong in a way that may pass."""


class _Refused(Exception):
    """The server will not answer this prompt."""


class Served:
    """A `Source`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_tokens: int,
        concurrency: int = 64,
        target: TargetFiles | None = None,
        template_variables: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; expected at least 1")
        self._endpoint = endpoint
        self._max_tokens = max_tokens
        self._concurrency = concurrency
        self._target = target
        self._template_variables = dict(template_variables or {})
        self._key = endpoint.api_key()

    def fetch(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> None:
        """Ask for all, `concurrency` at a time.

        Raises:
            EngineError: the server cannot be reached, or refuses every request.
            UsageError: it renders prompts in another way than the folder.
        """
        asyncio.run(self._fetch(asks, take))

    async def _fetch(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> None:
        waiting = iter(asks)
        num_answered = num_refused = 0
        async with _session(self._key) as session:

            async def work() -> None:
                nonlocal num_answered, num_refused
                for ask in waiting:
                    try:
                        answer = await self._ask(session, ask)
                    except _Refused as error:
                        num_refused += 1
                        if num_answered == 0 and num_refused >= min(REFUSALS_AT_START, len(asks)):
                            raise EngineError(
                                f"{self._endpoint.url}: refused the first {num_refused} requests, the last with {error}"
                            ) from error
                        answer = Answer(ask=ask, skipped=str(error))
                    else:
                        num_answered += 1
                    take(answer)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._concurrency, len(asks))):
                        group.create_task(work())
            except BaseExceptionGroup as failures:
                # every worker meets the same dead server or full disk: the first to say so speaks for all
                raise failures.exceptions[0] from failures

    async def _ask(self, session: aiohttp.ClientSession, ask: Ask) -> Answer:
        prompt_ids = None
        max_tokens = self._max_tokens
        if self._target is not None:
            try:
                prompt_ids = self._target.prompt_ids(ask.prompt.messages)
            except UsageError as error:
                raise _Refused(str(error)) from error
            max_tokens = min(max_tokens, self._target.context_length - len(prompt_ids))
            if max_tokens < 1:
                raise _Refused(f"the prompt fills the context of {self._target.context_length} tokens")
        body = orjson.dumps(self._body(ask, max_tokens))
        for attempt in range(ATTEMPTS):
            try:
                return self._answer(ask, await self._post(session, body), prompt_ids, max_tokens)
            except _Again as error:
                if attempt == ATTEMPTS - 1:
                    raise EngineError(
                        f"{self._endpoint.url}: {error}, {ATTEMPTS} times for the same prompt; the answers so far are kept: see to "
                        "the server and run the same command again"
                    ) from error
                await asyncio.sleep(BACKOFF_S * 2**attempt)
        raise AssertionError("unreachable")

    def _body(self, ask: Ask, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": ask.prompt.messages,
            "max_tokens": max_tokens,
            "temperature": ask.sampling.temperature,
            "top_p": ask.sampling.top_p,
            "return_token_ids": True,
        }
        if self._template_variables:
            body["chat_template_kwargs"] = self._template_variables
        return body

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> dict[str, Any]:
        try:
            async with session.post(self._endpoint.chat_url, data=body, allow_redirects=False) as response:
                raw = await _bounded(response)
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _Again(self._safe(f"no answer ({type(error).__name__}: {error})")) from error
        if status == 200:
            try:
                found = orjson.loads(raw)
            except orjson.JSONDecodeError as error:
                raise _Again(f"an answer that is not JSON ({error.msg})") from error
            if isinstance(found, dict):
                return found
            raise _Again("an answer that is no JSON object")
        message = self._safe(f"HTTP {status}: {_message(raw)}")
        if status in _WORTH_AGAIN:
            raise _Again(message)
        if status in _REFUSED:
            raise _Refused(message)
        raise EngineError(f"{self._endpoint.url}: {message}")

    def _answer(self, ask: Ask, found: dict[str, Any], rendered: tuple[int, ...] | None, max_tokens: int) -> Answer:
        try:
            choice = found["choices"][0]
            said = choice["message"]
            message = {"content": said.get("content") or ""}
            if reasoning := said.get("reasoning_content") or said.get("reasoning"):
                message["reasoning_content"] = reasoning
            if not all(isinstance(part, str) for part in message.values()):
                raise TypeError("content is not text")
            finish_reason = choice["finish_reason"]
            # vLLM and the embedded engine; SGLang puts both into the choice
            answer_ids = _ids(choice.get("token_ids", choice.get("response_token_ids")))
            prompt_ids = _ids(found.get("prompt_token_ids", choice.get("prompt_token_ids")))
            stopped_by = choice.get("matched_stop", choice.get("stop_reason"))
            usage = found.get("usage") or {}
            num_prompt_tokens = usage.get("prompt_tokens")
        except (LookupError, TypeError, AttributeError) as error:
            raise _Again(f"an answer that is not a chat completion ({type(error).__name__}: {error})") from error
        if finish_reason not in ("stop", "length"):
            raise _Refused(f"finish_reason {printable(str(finish_reason), 40)}")
        num_tokens = len(answer_ids) if answer_ids is not None else usage.get("completion_tokens")
        if type(num_tokens) is int and num_tokens > max_tokens:
            raise _Refused(f"{num_tokens} tokens where {max_tokens} were asked for at most: the server ignores max_tokens")
        if answer_ids and finish_reason == "stop" and type(stopped_by) is int and answer_ids[-1] != stopped_by:
            # the stop token was written, and is what a drafter must learn to say: some servers leave it out
            answer_ids = (*answer_ids, stopped_by)
        self._check_prompt(prompt_ids, num_prompt_tokens, rendered)
        return Answer(
            ask=ask,
            message=message,
            prompt_ids=prompt_ids if prompt_ids is not None else rendered,
            answer_ids=answer_ids,
            finish_reason=finish_reason,
        )

    def _check_prompt(self, served: tuple[int, ...] | None, num_served: object, rendered: tuple[int, ...] | None) -> None:
        if rendered is None:
            return
        assert self._target is not None
        if served is not None and served != rendered:
            place = next((i for i, (a, b) in enumerate(zip(served, rendered, strict=False)) if a != b), len(rendered))
            what = (
                f"from token {place} on: {self._target.tokenizer.text_of(served[place : place + 8])!a} there, "
                f"{self._target.tokenizer.text_of(rendered[place : place + 8])!a} here"
            )
        elif served is None and type(num_served) is int and num_served != len(rendered):
            what = f"into {num_served} tokens there, {len(rendered)} here"
        else:
            return
        # the server does as it was started: it is the folder or the settings beside it that the user has to mend
        raise UsageError(
            f"{self._endpoint.url}: renders prompts in another way than the template of {self._target.folder} ({what}). Put the "
            "served template into the folder, or give the server's template settings with --template-variables"
        )

    def _safe(self, text: str) -> str:
        # some servers quote the key they refuse
        return printable(text.replace(self._key, "[API key]") if self._key else text)


def served_model(url: str, *, api_key_env: str | None) -> str:
    """The name of the one model that a server offers.

    Raises:
        EngineError: it cannot be reached, or offers none.
        UsageError: it offers several.
    """
    endpoint = Endpoint(url=url, model="", api_key_env=api_key_env)

    async def ask() -> bytes:
        async with (
            _session(endpoint.api_key()) as session,
            session.get(endpoint.chat_url.removesuffix("chat/completions") + "models", allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise EngineError(f"{url}: HTTP {response.status} for the list of models; is it an OpenAI-compatible server?")
            return await _bounded(response)

    try:
        listed = orjson.loads(asyncio.run(ask()))
        names = [entry["id"] for entry in listed["data"]]
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise EngineError(f"{url}: cannot be reached ({type(error).__name__}: {error}); is the server running?") from error
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(f"{url}: answers the list of models with something else; expected an OpenAI-compatible server") from error
    if len(names) != 1 or not isinstance(names[0], str):
        listed_names = ", ".join(printable(str(name), 60) for name in names[:8]) or "none"
        raise UsageError(f"{url}: offers {len(names)} models ({listed_names}); say which with --model")
    return names[0]


def _session(key: str | None) -> aiohttp.ClientSession:
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    received = bytearray()
    async for chunk in response.content.iter_any():
        received += chunk
        if len(received) > MAX_ANSWER_BYTES:
            raise EngineError(f"an answer of more than {MAX_ANSWER_BYTES} bytes; expected a chat completion")
    return bytes(received)


def _ids(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        raise TypeError("token ids are not a list of whole numbers")
    return tuple(value)


def _message(raw: bytes) -> str:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw[:400].decode("utf-8", "replace")
    error = found.get("error", found) if isinstance(found, dict) else found
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else orjson.dumps(error).decode()[:400]
