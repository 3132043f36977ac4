"""Answers that loop: easy to draft for, they flatter accept length and teach a drafter little. Judged as by the load client."""

from __future__ import annotations

from breakeven.loadgen.degenerate import degenerate_reason

__all__ = ["looping_reason"]


def looping_reason(text: str, *, finished: bool) -> str | None:
    """What is wrong with an answer's text, in a few words, or None. `finished` is False for one cut off by its token limit."""
    return degenerate_reason(text, finished=finished)
