"""Which answers a training file is to hold, each asked of the target on its own, and what comes back for one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from breakeven.drafter.data.prompt_records import PromptRecord
from breakeven.drafter.data.training_records import Sampling
from breakeven.errors import UsageError

__all__ = ["Answer", "AnswerSettings", "Ask", "Source", "wanted_answers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """greedy_share: of all answers, those at temperature 0; a prompt gets at most one of these, since a second would be equal."""

    samples_per_prompt: int = 1
    max_tokens: int = 384
    greedy_share: float = 0.5
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        for name, fine, expected in (
            ("samples_per_prompt", self.samples_per_prompt >= 1, "at least 1"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("greedy_share", 0 <= self.greedy_share <= 1, "a number from 0 to 1"),
            ("temperature", 0 < self.temperature < 100, "above 0 (greedy answers are what greedy_share is for)"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
        ):
            if not fine:
                raise UsageError(f"{name} is {getattr(self, name)}; expected {expected}")
        if self.samples_per_prompt > 1 and self.greedy_share == 1:
            raise UsageError("samples_per_prompt above 1 with a greedy_share of 1: greedy answers to one prompt are all equal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One answer that is wanted."""

    id: str
    prompt: PromptRecord
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for one ask: ids where they are known, and the message. `skipped` says why there is none."""

    ask: Ask
    message: Mapping[str, Any] | None = None
    prompt_ids: Sequence[int] | None = None
    answer_ids: Sequence[int] | None = None
    finish_reason: str = "stop"
    skipped: str | None = None


class Source(Protocol):
    """Fetches answers and calls `take` with each, from one thread."""

    def fetch(self, asks: Sequence[Ask], take: Callable[[Answer], None]) -> None: ...


def wanted_answers(prompts: Sequence[PromptRecord], settings: AnswerSettings) -> list[Ask]:
    """Every answer of a complete file, in the order of the prompts; the same in every run."""
    asks: list[Ask] = []
    greedy = Sampling(temperature=0.0, top_p=1.0)
    sampled = Sampling(temperature=settings.temperature, top_p=settings.top_p)
    for prompt in prompts:
        digest = hashlib.sha256(f"greedy {settings.seed} {prompt.id}".encode()).digest()
        has_greedy = int.from_bytes(digest[:8]) / 2**64 < settings.greedy_share * settings.samples_per_prompt
        asks += [
            Ask(id=f"{prompt.id}-{number}", prompt=prompt, sampling=greedy if number == 0 and has_greedy else sampled)
            for number in range(settings.samples_per_prompt)
        ]
    return asks
