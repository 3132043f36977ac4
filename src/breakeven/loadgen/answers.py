"""Whole greedy answers, one a prompt: what equality of output is judged by.

Tokens are asked for in the ways servers have (log-probabilities with alternatives; token ids), and a server that refuses a way is
asked in a plainer one. What comes back is untrusted text: it is kept, compared and counted, never interpreted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from breakeven.loadgen.client import Endpoint
from breakeven.loadgen.degenerate import degenerate_reason
from breakeven.loadgen.samples import Prompt
from breakeven.loadgen.stream import printable

__all__ = ["MAX_BODY_BYTES", "NUM_ALTERNATIVES", "GreedyAnswer", "OnAnswer", "ask_greedily"]

# The drafted token that a wrong rule accepts is seldom beyond the target's first eight.
NUM_ALTERNATIVES = 8
TIMEOUT_S = 900.0
MAX_BODY_BYTES = 64_000_000
# Answers of servers that do not know a field, or a path of theirs that does not.
REFUSED = frozenset({400, 422, 501})

# How vLLM names a token by its number when asked to.
BY_NUMBER = "token_id:"

Alternatives = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyAnswer:
    """One prompt's answer at temperature 0.

    tokens: a name of each token (its bytes as the server gives them, in hexadecimal); empty where the server does not tell.
    token_ids: their numbers; empty where the server does not tell.
    alternatives: for each token of `tokens`, (token, log-probability) of the likeliest ones there, itself among them.
    """

    prompt_id: str
    text: str = ""
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    alternatives: tuple[Alternatives, ...] = field(default=(), repr=False)
    num_tokens: int = 0
    finish_reason: str | None = None
    degenerate: str | None = None
    error: str | None = None


OnAnswer = Callable[[Prompt, GreedyAnswer], None]


class _Refused(Exception):
    """The server does not take a request of this form."""


async def ask_greedily(
    endpoint: Endpoint,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    concurrency: int,
    on_answer: OnAnswer = lambda _prompt, _answer: None,
) -> list[GreedyAnswer]:
    """Answers in the order of `prompts`, at most `concurrency` under way. A request that fails is an answer with an `error`.

    on_answer: called with every answer as it comes.

    Raises:
        UsageError: the endpoint's API key is not in the environment.
    """
    headers = {"Content-Type": "application/json"}
    key = endpoint.api_key()
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    free = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:

        async def one(prompt: Prompt) -> GreedyAnswer:
            async with free:
                answer = await _ask(session, endpoint, prompt, max_tokens, key)
            on_answer(prompt, answer)
            return answer

        return list(await asyncio.gather(*map(one, prompts)))


async def _ask(
    session: aiohttp.ClientSession, endpoint: Endpoint, prompt: Prompt, max_tokens: int, key: str | None
) -> GreedyAnswer:
    refusal = ""
    for form in _FORMS:
        try:
            return _answer(prompt, await _post(session, endpoint, prompt, max_tokens, form))
        except _Refused as error:
            refusal = str(error)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, TypeError, LookupError, AttributeError) as error:
            refusal = f"{type(error).__name__}: {error}"
            break
    # some servers quote the key they refuse
    return GreedyAnswer(prompt_id=prompt.id, error=printable(refusal.replace(key, "[API key]") if key else refusal))


_FORMS: tuple[Mapping[str, object], ...] = (
    # vLLM then names tokens by their numbers: parts of characters would all read alike; others ignore the last two
    {"logprobs": True, "top_logprobs": NUM_ALTERNATIVES, "return_token_ids": True, "return_tokens_as_token_ids": True},
    {"return_token_ids": True},
    {},
)


async def _post(
    session: aiohttp.ClientSession, endpoint: Endpoint, prompt: Prompt, max_tokens: int, form: Mapping[str, object]
) -> Mapping[str, Any]:
    body = {
        "model": endpoint.model,
        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        "max_tokens": max_tokens,
        "temperature": 0.0,
        **form,
    }
    async with session.post(endpoint.chat_url, data=orjson.dumps(body), allow_redirects=False) as response:
        data = b""
        while len(data) < MAX_BODY_BYTES and (more := await response.content.read(MAX_BODY_BYTES - len(data))):
            data += more
        if response.status != 200:
            said = f"HTTP {response.status}: {printable(data.decode(errors='replace'))}"
            if response.status in REFUSED:
                raise _Refused(said)
            raise ValueError(said)
    answer = orjson.loads(data)
    if not isinstance(answer, dict):
        raise TypeError("the answer is no JSON object")
    return answer


def _answer(prompt: Prompt, body: Mapping[str, Any]) -> GreedyAnswer:
    """What an OpenAI-compatible server said. Raises what such look-ups raise (see `_ask`) where it said no such thing."""
    choice = body["choices"][0]
    text = choice["message"].get("content") or ""
    if not isinstance(text, str):
        raise TypeError("the answer's content is no text")
    entries = (choice.get("logprobs") or {}).get("content") or []
    ids = choice.get("token_ids") or []
    usage = body.get("usage") or {}
    num_tokens = usage.get("completion_tokens")
    reason = choice.get("finish_reason")
    return GreedyAnswer(
        prompt_id=prompt.id,
        text=text,
        tokens=tuple(_token(entry) for entry in entries),
        token_ids=tuple(int(number) for number in ids),
        alternatives=tuple(
            tuple((_token(other), float(other["logprob"])) for other in entry.get("top_logprobs") or ()) for entry in entries
        ),
        num_tokens=num_tokens if isinstance(num_tokens, int) and num_tokens >= 0 else len(entries) or len(ids),
        finish_reason=reason if isinstance(reason, str) else None,
        degenerate=degenerate_reason(text),
    )


def _token(entry: Mapping[str, Any]) -> str:
    """In hexadecimal, which is safe to keep and to show. A number, where the server gives that, beside whatever bytes."""
    name, data = str(entry["token"]), entry.get("bytes")
    if isinstance(data, list) and data and not name.startswith(BY_NUMBER):
        return bytes(data).hex()
    return name.encode("utf-8", "surrogatepass").hex()
