"""Tokens to text while they arrive: incomplete characters and possible stop strings are held back, nothing is decoded twice."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["TextDelta", "TextStream"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that is now certain, the tokens counted for it, and the stop string that ended the answer if one did."""

    text: str
    num_tokens: int
    stopped_by: str | None = None


class TextStream:
    """The text of one answer. Constant work per token, apart from the stop strings' own lengths.

    Bytes that are no UTF-8 become U+FFFD, one for each maximal ill-formed part, as `tokenizers` does.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stop: Sequence[str] = ()) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = tuple(stop)
        self._longest = max((len(string) for string in self._stop), default=0)
        self._held = ""

    def push(self, token_ids: Sequence[int], *, last: bool = False) -> TextDelta:
        """Text that `token_ids` make certain. `last` releases what was held back. Tokens after a stop string are not counted."""
        if not self._stop:
            return TextDelta(self._decoder.decode(b"".join(map(self._token_bytes, token_ids)), last), len(token_ids))
        released = ""
        for index, token_id in enumerate(token_ids):
            text, stopped_by = self._release(self._decoder.decode(self._token_bytes(token_id)))
            released += text
            if stopped_by is not None:
                return TextDelta(released, index + 1, stopped_by)
        if last:
            text, stopped_by = self._release(self._decoder.decode(b"", True))
            released += text
            if stopped_by is not None:
                return TextDelta(released, len(token_ids), stopped_by)
            released += self._held
            self._held = ""
        return TextDelta(released, len(token_ids))

    def _release(self, arrived: str) -> tuple[str, str | None]:
        """Text up to the first stop string, or up to what may still become one."""
        text = self._held + arrived
        found = [(position, string) for string in self._stop if (position := text.find(string)) >= 0]
        if found:
            position, string = min(found)
            self._held = ""
            return text[:position], string
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if any(string.startswith(text[start:]) for string in self._stop):
                self._held = text[start:]
                return text[:start], None
        self._held = ""
        return text, None
