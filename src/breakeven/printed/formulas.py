"""The definitions of acceptance met in the field, each as a pair of functions: from true accept length to printed, and back.

Let AL be the true accept length (tokens per decode step, bonus included), d the drafts proposed a round, n = d + 1 the verified
slots (drafts and the root) and s the draft steps. A chain (topk 1) has s = d; a tree proposes more nodes than it is deep.

    accepted / drafted     (AL - 1) / d        0 when no draft is accepted
    length / slots          AL / n             1 / n
    length / (steps + 1)    AL / (s + 1)       1 / (s + 1)
    accepted / steps       (AL - 1) / s        0
    share of output        (AL - 1) / AL       0
    per-position chain      r with 1 + r + ... + r^d = AL      0

Sources: docs/acceptance.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from breakeven.printed.figures import Bounds

__all__ = ["DraftShape", "LengthFormula", "RateFormula", "chain_alpha"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShape:
    """What a round proposes. `num_drafted` leaves the root out; `num_steps` is the depth; None where it is not known."""

    num_drafted: int | None = None
    num_steps: int | None = None
    is_chain: bool | None = None

    @property
    def num_slots(self) -> int | None:
        return None if self.num_drafted is None else self.num_drafted + 1

    @property
    def max_length(self) -> int | None:
        """The longest possible accept length: every step accepted, plus the bonus."""
        depths = [d for d in (self.num_steps, self.num_drafted) if d is not None]
        return 1 + min(depths) if depths else None


class LengthFormula(Enum):
    """What a printed "accept length" counts."""

    BONUS_INCLUDED = "tokens per step, bonus included"
    BONUS_EXCLUDED = "accepted drafts per step, bonus not included"

    def to_true(self, printed: Bounds) -> Bounds:
        shift = 1.0 if self is LengthFormula.BONUS_EXCLUDED else 0.0
        return Bounds(printed.estimate + shift, printed.low + shift, printed.high + shift)

    def printed(self, accept_length: float) -> float:
        return accept_length - 1.0 if self is LengthFormula.BONUS_EXCLUDED else accept_length


class RateFormula(Enum):
    """What a printed "accept rate" divides by what."""

    ACCEPTED_OVER_DRAFTED = "(length - 1) / drafted"
    LENGTH_OVER_SLOTS = "length / (drafted + 1)"
    LENGTH_OVER_STEPS_PLUS_ONE = "length / (steps + 1)"
    ACCEPTED_OVER_STEPS = "(length - 1) / steps"
    SHARE_OF_OUTPUT = "(length - 1) / length"
    CHAIN_ALPHA = "acceptance of each draft given the ones before, alike at every position"

    @property
    def counts_bonus(self) -> bool:
        """Whether the bonus token is in the numerator: then the rate never falls to 0, whatever the drafter does."""
        return self in {RateFormula.LENGTH_OVER_SLOTS, RateFormula.LENGTH_OVER_STEPS_PLUS_ONE}

    def denominator(self, shape: DraftShape) -> int | None:
        """What the tokens are divided by; None where the shape does not say, or where the formula has no fixed one."""
        match self:
            case RateFormula.ACCEPTED_OVER_DRAFTED | RateFormula.CHAIN_ALPHA:
                return shape.num_drafted
            case RateFormula.LENGTH_OVER_SLOTS:
                return shape.num_slots
            case RateFormula.LENGTH_OVER_STEPS_PLUS_ONE:
                return None if shape.num_steps is None else shape.num_steps + 1
            case RateFormula.ACCEPTED_OVER_STEPS:
                return shape.num_steps
            case RateFormula.SHARE_OF_OUTPUT:
                return None

    def is_defined_for(self, shape: DraftShape) -> bool:
        return self is RateFormula.SHARE_OF_OUTPUT or bool(self.denominator(shape))

    def rate(self, accept_length: float, shape: DraftShape) -> float:
        """What would be printed at this true accept length.

        Raises:
            ValueError: the shape lacks what the formula divides by.
        """
        if self is RateFormula.SHARE_OF_OUTPUT:
            return (accept_length - 1.0) / accept_length
        denominator = self._needed(shape)
        if self is RateFormula.CHAIN_ALPHA:
            return chain_alpha(accept_length, denominator)
        return (accept_length - (0.0 if self.counts_bonus else 1.0)) / denominator

    def accept_length(self, rate: float, shape: DraftShape) -> float:
        """The true accept length behind a printed rate. Raises ValueError as `rate` does, and for a share of 1 or more."""
        if self is RateFormula.SHARE_OF_OUTPUT:
            if rate >= 1.0:
                raise ValueError("drafts cannot be all of the output: every step emits one token of the target's own")
            return 1.0 / (1.0 - rate)
        denominator = self._needed(shape)
        if self is RateFormula.CHAIN_ALPHA:
            return sum(rate**position for position in range(denominator + 1))
        return (0.0 if self.counts_bonus else 1.0) + rate * denominator

    def floor(self, shape: DraftShape) -> float:
        """What is printed when no draft is ever accepted."""
        return self.rate(1.0, shape)

    def _needed(self, shape: DraftShape) -> int:
        denominator = self.denominator(shape)
        if not denominator:
            raise ValueError(f"{self.value!r} needs the number of drafts or steps a round")
        return denominator


def chain_alpha(accept_length: float, num_drafted: int) -> float:
    """The constant conditional acceptance a with 1 + a + ... + a^d = accept length; by Newton's method, in [0, 1].

    The sum is convex and rises in a, so from 1 every step ends between the solution and the one before.

    Raises:
        ValueError: no chain of `num_drafted` drafts has this accept length.
    """
    if not 1.0 - 1e-9 <= accept_length <= num_drafted + 1.0 + 1e-9:
        raise ValueError(f"an accept length of {accept_length:g} is not between 1 and {num_drafted + 1}")
    if accept_length <= 1.0 or accept_length >= num_drafted + 1.0:
        return 0.0 if accept_length <= 1.0 else 1.0
    alpha = 1.0
    for _ in range(60):
        value = slope = 0.0
        for _ in range(num_drafted + 1):  # Horner's scheme
            slope = slope * alpha + value
            value = value * alpha + 1.0
        step = (value - accept_length) / slope
        if step <= 1e-16:
            break
        alpha -= step
    return max(alpha, 0.0)
