"""What the load client returns: raw samples of one measured window. Everything reported later is derived from these.

Times are seconds on the client's monotonic clock, counted from the start of the measured window: a request that began in
warm-up has a negative `start_s`, and an arrival before 0 or after `window_s` lies outside the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["ClientHealth", "LoadPoint", "LoadResult", "Prompt", "RequestSample", "Void", "VoidReason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request's input, as chat messages. `kind` groups prompts in reports (chat, code, ...)."""

    id: str
    kind: str
    messages: tuple[tuple[str, str], ...]  # (role, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """How the server is loaded: closed loop (`concurrency` requests always under way) or open loop (`rate_per_s`, Poisson)."""

    concurrency: int | None = None
    rate_per_s: float | None = None
    max_tokens: int = 128
    fixed_length: bool = False  # ignore_eos: every answer has exactly max_tokens
    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("a load point has either a concurrency or a rate_per_s")

    @property
    def label(self) -> str:
        return f"c={self.concurrency}" if self.concurrency is not None else f"{self.rate_per_s:g}/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """One request. `arrivals` are (time_s, cumulative output tokens by the server's usage counts), never chunk counts.

    `error` is None for a request that ended well or was cut off by the end of the window (`finish_reason` None then).
    `staggered` marks the first request of a closed-loop slot, which asks for fewer tokens than the load point says so that slots
    do not march in step: its tokens count, its whole latency means nothing. `speculation` holds what the server reported about the
    request's drafts when it ended, under its own names; None where it reported nothing.
    """

    index: int
    prompt_id: str
    kind: str
    scheduled_s: float
    start_s: float
    first_token_s: float | None
    end_s: float
    prompt_tokens: int | None
    output_tokens: int
    finish_reason: str | None
    arrivals: tuple[tuple[float, int], ...]
    degenerate: str | None = None
    error: str | None = None
    staggered: bool = False
    speculation: Mapping[str, int | list[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """Whether the client, not the server, set the pace. Lags are seconds, `cpu_share` is of one core over the window."""

    loop_lag_p99_s: float
    dispatch_delay_p99_s: float
    cpu_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """`steady` is False where the window had to begin before every slot had its first token, or never began (see `run_load`).

    `silence`: what came in place of tokens where not one came and no request failed; empty otherwise.
    """

    window_s: float
    samples: Sequence[RequestSample]
    health: ClientHealth
    steady: bool = True
    silence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """Why a trial does not count. `code` is a VoidReason; `detail` states the figures."""

    code: str
    detail: str


VoidReason = Literal[
    "client_bottleneck",
    "degenerate_output",
    "errors",
    "foreign_traffic",
    "no_tokens",
    "preempted",
    "queued",
    "server_died",
    "too_few_tokens",
    "too_many_tokens",
    "unhealthy",
    "unsteady",
]
