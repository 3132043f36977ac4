"""One streamed answer: server-sent events to token counts and text. The bytes come from a server and are trusted in nothing.

Tokens are counted by the server's `usage` only. A chunk carries one engine step, so 1 to k + 1 tokens under speculation, and may
merge several steps under load: counting chunks would be wrong by the accept length, which is the thing measured.

Two kinds of server are told apart by what they send:

* usage in every chunk (vLLM and SGLang asked for `continuous_usage_stats`, Breakeven's own): every arrival is exact;
* usage at the end only: the answer then has two arrivals, one token at the first text and all tokens at the last text. Its total,
  first-token time and mean decode time are right; how tokens were spread between is lost, so throughput over a window gets the
  whole answer at its end (right on average, noisier), and an answer cut off by the window's end counts for nothing.
"""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ["MAX_EVENT_BYTES", "MAX_TEXT_CHARS", "AnswerStream", "StreamError", "printable"]

# No engine comes anywhere near these; a server that never ends a line, or an answer, must not fill the client's memory.
MAX_EVENT_BYTES = 1 << 20
MAX_TEXT_CHARS = 10_000_000
MAX_TOKENS = 100_000_000
# Fields, and entries of a histogram, that are kept of what a server reports about one request.
MAX_REPORTED = 128

_REASON_CHARS = 160
_OTHER_CHARS = 40


class StreamError(Exception):
    """What was wrong with a stream, short enough for a table. Never leaves the load generator: it becomes a sample's `error`."""


def printable(text: str, limit: int = _REASON_CHARS) -> str:
    """Text from a server as one short line: control characters and line breaks out, cut to `limit` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 8 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


class AnswerStream:
    """Fills itself from the body of one response, in pieces of any size.

    Times are whatever clock the caller feeds. `arrivals` are (time, cumulative output tokens); pieces of one read share a time.
    `other_line` is the first line that carries no data and is not empty, `num_other_lines` counts all that carry none.
    """

    __slots__ = (
        "_last_text_s",
        "_num_chars",
        "_rest",
        "_text",
        "arrivals",
        "done",
        "finish_reason",
        "first_token_s",
        "num_events",
        "num_other_lines",
        "other_line",
        "output_tokens",
        "prompt_tokens",
        "speculation",
    )

    def __init__(self) -> None:
        self.arrivals: list[tuple[float, int]] = []
        self.first_token_s: float | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens = 0
        self.finish_reason: str | None = None
        self.speculation: dict[str, int | list[int]] | None = None
        self.done = False
        self.num_events = 0
        self.num_other_lines = 0
        self.other_line = ""
        self._text: list[str] = []
        self._num_chars = 0
        self._last_text_s: float | None = None
        self._rest = b""

    @property
    def text(self) -> str:
        """Everything the model wrote, its reasoning first where the server sends that apart."""
        return "".join(self._text)

    def feed(self, data: bytes, now_s: float) -> None:
        """Take in the next bytes of the body, read at `now_s`.

        Raises:
            StreamError: an event that is not what an OpenAI-compatible server sends, or an error that the server reports.
        """
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_EVENT_BYTES:
            raise StreamError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            # Engines put each JSON document on one line; other fields and comments (keep-alive pings) carry nothing for us.
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now_s)
            else:
                self.num_other_lines += 1
                if not self.other_line:
                    self.other_line = printable(line[: 8 * _OTHER_CHARS].decode("utf-8", "replace"), _OTHER_CHARS)

    def end(self) -> None:
        """The body is complete.

        Raises:
            StreamError: the answer is not: the stream stopped early, or the server counts no tokens.
        """
        if not self.done and self.finish_reason is None:
            raise StreamError(f"stream ended early, after {self.output_tokens} tokens")
        if not self.arrivals and self._last_text_s is not None:
            raise StreamError("no usage counts in the stream: the server ignores stream_options.include_usage")

    def _take(self, payload: bytes, now_s: float) -> None:
        self.num_events += 1
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = orjson.loads(payload)
            if event.get("error") is not None:
                raise StreamError(f"error in the stream: {_message(event['error'])}")
            self._count(event.get("usage"), event.get("choices"), now_s)
            if "sglext" in event or "metrics" in event:
                self.speculation = _speculation(event) or self.speculation
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # orjson's error is a ValueError
            raise StreamError(f"malformed event: {printable(payload.decode('utf-8', 'replace'), 80)}") from error

    def _count(self, usage: dict[str, Any] | None, choices: list[dict[str, Any]] | None, now_s: float) -> None:
        text = ""
        if choices:
            choice = choices[0]
            delta = choice.get("delta") or {}
            text = (delta.get("reasoning_content") or delta.get("reasoning") or "") + (delta.get("content") or "")
            reason = choice.get("finish_reason")
            if reason is not None:
                self.finish_reason = printable(reason, 32)
        if text:
            self._text.append(text)
            self._num_chars += len(text)
            if self._num_chars > MAX_TEXT_CHARS:
                raise StreamError(f"an answer of more than {MAX_TEXT_CHARS} characters")
            self._last_text_s = now_s
        if usage:
            self.prompt_tokens = _count_of(usage["prompt_tokens"])
            self._arrive(_count_of(usage["completion_tokens"]), now_s)
        if text and self.first_token_s is None:
            self.first_token_s = now_s

    def _arrive(self, total: int, now_s: float) -> None:
        if total < self.output_tokens:
            raise ValueError("usage went backwards")
        if total == self.output_tokens:
            return
        self.output_tokens = total
        if self.arrivals:
            if self.arrivals[-1][0] == now_s:
                self.arrivals.pop()
            self.arrivals.append((now_s, total))
        elif self.first_token_s is None:
            self.first_token_s = now_s
            self.arrivals.append((now_s, total))
        else:  # text came before any count: usage at the end only
            assert self._last_text_s is not None
            if total > 1 and self._last_text_s > self.first_token_s:
                self.arrivals.append((self.first_token_s, 1))
            self.arrivals.append((self._last_text_s, total))


def _speculation(event: dict[str, Any]) -> dict[str, int | list[int]] | None:
    """Counts about a request's drafts, in SGLang's or vLLM's place for them; what else stands there is left out."""
    for place, name in (("sglext", "spec_tokens_details"), ("metrics", "speculative_decoding")):
        found = (event.get(place) or {}).get(name)
        if isinstance(found, dict):
            kept = {str(key)[:64]: value for key, value in list(found.items())[:MAX_REPORTED] if _is_counts(value)}
            return kept or None
    return None


def _is_counts(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= MAX_REPORTED and all(type(count) is int and 0 <= count <= MAX_TOKENS for count in value)
    return type(value) is int and 0 <= value <= MAX_TOKENS


def _count_of(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise TypeError("a token count is a whole number that an answer can have")
    return value


def _message(error: object) -> str:
    """The words of an error object, whichever of the usual shapes it has."""
    if isinstance(error, dict):
        error = error.get("message") or error
    return printable(error if isinstance(error, str) else orjson.dumps(error).decode())
