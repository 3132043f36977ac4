"""A server that takes requests and sends no token: what it sends in their place, and how long that is waited for.

Pings without data (comments of server-sent events) are what proxies and gateways send while whatever stands behind them does
nothing. A server at a long prompt may send them too, so they are waited for beyond the warm-up, though not as long as one that
says nothing at all: whoever knows that first tokens take longer gives a longer warm-up.
"""

from __future__ import annotations

from collections.abc import Iterable

from breakeven.loadgen.client import Answer
from breakeven.units import plural

__all__ = ["PINGS_TIMEOUT_S", "only_pings", "silence"]

PINGS_TIMEOUT_S = 30.0


def silence(answers: Iterable[Answer]) -> str:
    """What came in place of tokens; empty where a token or text came, a request failed, or nothing was asked."""
    asked = [answer for answer in answers if answer.start_s is not None]
    if not asked or not _is_silent(asked):
        return ""
    streams = [answer.stream for answer in asked]
    requests = plural(len(asked), "request")
    if ended := sum(map(_has_ended, asked)):
        return f"of {requests}, {ended} ended without a token"
    if events := sum(stream.num_events for stream in streams):
        return f"{requests} got {plural(events, 'event')} and not one token"
    if lines := sum(stream.num_other_lines for stream in streams):
        first = next((stream.other_line for stream in streams if stream.other_line), "")
        kind = f"the first being {first!r}" if first else "all of them empty"
        return f"{requests} got {plural(lines, 'line')} without data ({kind}) and not one event"
    return f"{requests} got nothing at all"


def only_pings(answers: Iterable[Answer]) -> bool:
    """Whether lines without data are all that has come, or answers that ended without a token."""
    asked = list(answers)
    talks = any(answer.stream.num_other_lines for answer in asked)
    return talks and _is_silent(asked) and all(_has_ended(answer) or not answer.stream.num_events for answer in asked)


def _has_ended(answer: Answer) -> bool:
    return answer.stream.done or answer.stream.finish_reason is not None


def _is_silent(answers: Iterable[Answer]) -> bool:
    return not any(answer.stream.first_token_s is not None or answer.error is not None for answer in answers)
