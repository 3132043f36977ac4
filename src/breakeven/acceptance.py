"""Acceptance: the one record that every engine's printed figures are converted to, and the words for it.

A **step** is one decode forward of one request; a **round** is a step that carried drafts. The target emits one token of its own
a step (the bonus) plus the drafts it accepts, so over any window::

    tokens   = steps + accepted
    accept length      AL = tokens / steps           = 1 + accepted / steps      (>= 1, bonus included)
    draft acceptance      = accepted / drafted
    joint acceptance    a_i = P(first i drafts accepted) = accepted_per_position[i - 1] / rounds
    conditional         c_i = a_i / a_(i - 1)        with a_0 = 1
    drafted share         = rounds / steps

vLLM divides by rounds instead of steps (`per_round_length`), which flatters drafters that often have nothing to propose (n-gram).
Sources of the definitions: docs/acceptance.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

__all__ = ["Acceptance", "AcceptanceSource"]

# Best first: counts over the window; counts that came with each request that ended; averages that a log prints; a gauge of the last
# interval. The last two are rounded, and their counts stand only for their means.
AcceptanceSource = Literal["counters", "requests", "log", "gauge"]
_SOURCES: tuple[AcceptanceSource, ...] = ("counters", "requests", "log", "gauge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Counts over one window, raw; every rate is derived.

    num_steps: decode forwards summed over requests (a request running alone for 10 forwards counts 10).
    num_rounds: those of them that carried at least one draft.
    num_drafted, num_accepted: draft tokens proposed and accepted (the bonus token is neither).
    accepted_per_position: index i counts the rounds in which drafts 0..i were all accepted.
    exact_steps: False where the engine does not count steps and `num_steps` was derived (say so beside the figure).
    source: where the counts were read.
    """

    num_steps: int
    num_rounds: int
    num_drafted: int
    num_accepted: int
    accepted_per_position: tuple[int, ...] = ()
    exact_steps: bool = True
    source: AcceptanceSource = "counters"

    def __post_init__(self) -> None:
        counts = (self.num_steps, self.num_rounds, self.num_drafted, self.num_accepted, *self.accepted_per_position)
        if any(count < 0 for count in counts):
            raise ValueError(f"acceptance counts cannot be negative: {self}")

    @property
    def accept_length(self) -> float:
        """Tokens per decode step, bonus included; NaN before the first step."""
        return 1.0 + self.num_accepted / self.num_steps if self.num_steps else math.nan

    @property
    def per_round_length(self) -> float:
        """Tokens per step that carried drafts: what vLLM prints as "mean acceptance length"."""
        return 1.0 + self.num_accepted / self.num_rounds if self.num_rounds else math.nan

    @property
    def draft_acceptance(self) -> float:
        return self.num_accepted / self.num_drafted if self.num_drafted else math.nan

    @property
    def drafted_share(self) -> float:
        return self.num_rounds / self.num_steps if self.num_steps else math.nan

    @property
    def joint(self) -> tuple[float, ...]:
        """P(first i drafts accepted) for i = 1..k, over rounds; non-increasing by definition."""
        if not self.num_rounds:
            return ()
        return tuple(count / self.num_rounds for count in self.accepted_per_position)

    @property
    def conditional(self) -> tuple[float, ...]:
        """P(draft i accepted | drafts before it were), NaN once nothing reaches position i."""
        joint = self.joint
        return tuple(a / before if before else math.nan for before, a in zip((1.0, *joint), joint, strict=False))

    def __add__(self, other: Acceptance) -> Acceptance:
        """Counts of two windows, or of two replicas, together: sum first, divide after."""
        pairs = zip_longest(self.accepted_per_position, other.accepted_per_position, fillvalue=0)
        return Acceptance(
            num_steps=self.num_steps + other.num_steps,
            num_rounds=self.num_rounds + other.num_rounds,
            num_drafted=self.num_drafted + other.num_drafted,
            num_accepted=self.num_accepted + other.num_accepted,
            accepted_per_position=tuple(mine + theirs for mine, theirs in pairs),
            exact_steps=self.exact_steps and other.exact_steps,
            source=max(self.source, other.source, key=_SOURCES.index),
        )

    def since(self, earlier: Acceptance) -> Acceptance:
        """Counts between two scrapes of the same counters.

        Raises:
            ValueError: a counter went backwards, so the engine restarted between the scrapes.
        """
        pairs = zip_longest(self.accepted_per_position, earlier.accepted_per_position, fillvalue=0)
        return Acceptance(
            num_steps=self.num_steps - earlier.num_steps,
            num_rounds=self.num_rounds - earlier.num_rounds,
            num_drafted=self.num_drafted - earlier.num_drafted,
            num_accepted=self.num_accepted - earlier.num_accepted,
            accepted_per_position=tuple(now - then for now, then in pairs),
            exact_steps=self.exact_steps and earlier.exact_steps,
            source=max(self.source, earlier.source, key=_SOURCES.index),
        )
