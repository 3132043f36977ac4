"""The OpenAI-compatible requests that the server understands, and the JSON of its answers.

As in vLLM, fields nobody knows are ignored. A known field that would change the answer but is not implemented is refused, unless it
carries the value that means "off": silence would hand back an answer to another question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from breakeven.errors import UsageError

__all__ = [
    "ChatRequest",
    "CompletionRequest",
    "Reply",
    "RequestBody",
    "error_body",
    "parse_body",
]

Body = TypeVar("Body", bound="RequestBody")

DEFAULT_COMPLETION_TOKENS = 16  # the API's own default for /v1/completions; chat defaults to what the context leaves

# Known fields that are not implemented, with the values that mean "off".
SWITCHED_OFF: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logits_processors": (),
    "truncate_prompt_tokens": (),
    "skip_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "chat_template": (),
    "prompt_embeds": (),
}


class StreamOptions(BaseModel):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Message(BaseModel):
    """Fields beyond role and content are handed to the chat template."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None

    def for_template(self) -> dict[str, Any]:
        """The message with its content as one string; parts of text are joined by line ends, as vLLM joins them.

        Raises:
            UsageError: a part is not text.
        """
        content = self.content
        if isinstance(content, list):
            if wrong := [
                part.get("type") for part in content if part.get("type") != "text" or not isinstance(part.get("text"), str)
            ]:
                raise UsageError(f"a message holds a part of type {wrong[0]!r}: this server takes text only")
            content = "\n".join(part["text"] for part in content)
        return {**(self.model_extra or {}), "role": self.role, "content": content or ""}


class RequestBody(BaseModel):
    """What both endpoints share. `temperature` and `top_p` default to the model's generation config, then to 1."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    min_tokens: int = Field(default=0, ge=0)
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False

    @model_validator(mode="after")
    def _refuse_what_is_not_implemented(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if name in SWITCHED_OFF and value is not None and value not in SWITCHED_OFF[name]:
                raise ValueError(f"{name}={value!r} is not supported by this server")
        if self.min_tokens and not self.ignore_eos:
            raise ValueError("min_tokens is supported only together with ignore_eos")
        if any(string == "" for string in self.stop_strings):
            raise ValueError("stop cannot contain an empty string")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is allowed only with stream=true")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}; expected 0 to 2^63 - 1")
        return self

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def token_limit(self) -> int | None:
        """The most tokens wanted, or None for what the context leaves."""
        return self.max_tokens


class ChatRequest(RequestBody):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


class CompletionRequest(RequestBody):
    prompt: str | list[int] | list[str] | list[list[int]]
    add_special_tokens: bool = True

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens if self.max_tokens is not None else DEFAULT_COMPLETION_TOKENS

    def single_prompt(self) -> str | list[int]:
        """The prompt, taken out of a list of one.

        Raises:
            UsageError: there are several prompts.
        """
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt:
            return prompt if isinstance(prompt, str) else []
        if isinstance(prompt[0], int):
            return [token for token in prompt if isinstance(token, int)]
        if len(prompt) > 1:
            raise UsageError(f"{len(prompt)} prompts in one request: this server takes one; send a request for each")
        return prompt[0]


def parse_body(body: bytes, kind: type[Body]) -> Body:
    """Read a request's JSON.

    Raises:
        UsageError: not JSON, or a field that is wrong; the message names it.
    """
    try:
        return kind.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the body is not JSON: {error}") from error
    except ValidationError as error:
        problems = []
        for problem in error.errors(include_url=False, include_context=False):
            where = ".".join(str(part) for part in problem["loc"])
            message = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{where}: {message}" if where else message)
        raise UsageError("; ".join(problems[:3])) from error


def error_body(message: str, status: int, kind: str, param: str | None = None) -> bytes:
    """OpenAI's error object, in vLLM's spelling."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": status}})


class Reply:
    """The JSON of one answer, whole or in server-sent events. `kind` is "chat" or "text"."""

    def __init__(self, *, kind: Literal["chat", "text"], reply_id: str, model: str, created: int, num_prompt_tokens: int) -> None:
        self._chat = kind == "chat"
        self._num_prompt_tokens = num_prompt_tokens
        self._head = {"id": reply_id, "object": "", "created": created, "model": model}
        self._chunk_head = {**self._head, "object": "chat.completion.chunk" if self._chat else "text_completion"}

    def whole(
        self,
        text: str,
        *,
        finish_reason: str,
        stop_reason: str | None,
        num_tokens: int,
        prompt_ids: Sequence[int] = (),
        token_ids: list[int] | None,
    ) -> bytes:
        """The answer in one piece. With `token_ids` the ids of the prompt are shown too, where vLLM shows them."""
        answer: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = {"index": 0, **answer, "logprobs": None, "finish_reason": finish_reason, "stop_reason": stop_reason}
        head = {**self._head, "object": "chat.completion" if self._chat else "text_completion"}
        if token_ids is not None:
            choice["token_ids"] = token_ids
            (head if self._chat else choice)["prompt_token_ids"] = list(prompt_ids)
        return orjson.dumps({**head, "choices": [choice], "usage": self._usage(num_tokens)})

    def opening(self, *, with_usage: bool) -> bytes:
        """The chat stream's first event, which names the role; a text stream has none."""
        if not self._chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._event({"choices": [choice]}, num_tokens=0 if with_usage else None)

    def delta(
        self,
        text: str,
        *,
        num_tokens: int | None,
        finish_reason: str | None = None,
        stop_reason: str | None = None,
        token_ids: list[int] | None = None,
    ) -> bytes:
        """One event of new text; `num_tokens` so far adds the usage to it."""
        choice: dict[str, Any] = {"index": 0, "delta": {"content": text}} if self._chat else {"index": 0, "text": text}
        choice["logprobs"] = None
        choice["finish_reason"] = finish_reason
        if finish_reason is not None:
            choice["stop_reason"] = stop_reason
        if token_ids is not None:
            choice["token_ids"] = token_ids
        return self._event({"choices": [choice]}, num_tokens=num_tokens)

    def closing(self, *, num_tokens: int | None) -> bytes:
        """The last events: the usage of the whole answer when it was asked for, and the end mark."""
        usage = b"" if num_tokens is None else self._event({"choices": []}, num_tokens=num_tokens)
        return usage + b"data: [DONE]\n\n"

    def _event(self, content: dict[str, Any], *, num_tokens: int | None) -> bytes:
        event = self._chunk_head | content
        if num_tokens is not None:
            event["usage"] = self._usage(num_tokens)
        return b"data: " + orjson.dumps(event) + b"\n\n"

    def _usage(self, num_tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self._num_prompt_tokens,
            "total_tokens": self._num_prompt_tokens + num_tokens,
            "completion_tokens": num_tokens,
        }
