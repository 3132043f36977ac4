"""What a drafter's acceptance by position says of its accept length at any number of drafts, and what training must raise.

    joint a_i = P(first i drafts accepted)      conditional c_i = a_i / a_(i - 1)      AL(k) = 1 + a_1 + ... + a_k

Beyond the positions that were measured the conditional acceptance is not known. Published drafters keep theirs or lose some
with every position, so the value prolongs the last one, the upper bound the better of the last two, and the lower bound has
half of what the value adds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["AcceptanceCurve", "Length", "Lever"]

# Conditional acceptance above this cannot be asked of training: published heads end well below it at any position.
MOST_CONDITIONAL = 0.95
# measured lengths may fall by this much from one number of drafts to the next by chance
NOISE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Accept length with bounds; `is_extrapolated` where drafts beyond the measured positions take part."""

    value: float
    low: float
    high: float
    is_extrapolated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """Raising the conditional acceptance of `position` (from 1) from `now` to `needed` alone reaches the accept length asked for.

    `gain` is how much the accept length grows for each 0.01. needed is None where even a perfect position would not reach it.
    """

    position: int
    now: float
    needed: float | None
    gain: float


@dataclass(frozen=True, slots=True)
class AcceptanceCurve:
    """`joint` for positions 1..k, not rising. `half_width` of the 95 % interval of AL(k) as measured (over prompts), if known.

    Without it, `num_rounds` gives the sampling error that independent rounds would have; with neither there is none.
    """

    joint: tuple[float, ...]
    num_rounds: int | None = None
    half_width: float | None = None

    def __post_init__(self) -> None:
        if not self.joint:
            raise ValueError("no acceptance was given; expected one share for each draft position")
        before = 1.0
        for position, share in enumerate(self.joint, start=1):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"position {position}: {share}; expected a share between 0 and 1")
            if share > before + 1e-9:
                raise ValueError(
                    f"position {position}: {share:g} after {before:g}; joint acceptance cannot rise from one position to the next "
                    "(conditional values are not joint: multiply them up)"
                )
            before = share

    @classmethod
    def from_conditional(cls, conditional: Sequence[float], num_rounds: int | None = None) -> AcceptanceCurve:
        """Raises ValueError as the constructor."""
        if any(not 0.0 <= share <= 1.0 for share in conditional):
            raise ValueError(
                f"conditional acceptance {', '.join(f'{share:g}' for share in conditional)}; expected shares in 0 to 1"
            )
        return cls(tuple(math.prod(conditional[:end]) for end in range(1, len(conditional) + 1)), num_rounds)

    @classmethod
    def from_lengths(cls, lengths: Mapping[int, float]) -> AcceptanceCurve:
        """From accept lengths at several numbers of drafts in a chain: AL(k) - AL(j) is a_(j + 1) + ... + a_k.

        A gap of several positions is filled geometrically, as a chain of one conditional acceptance.

        Raises:
            ValueError: a length below 1 or above k + 1, or lengths that fall, or grow faster, with more drafts.
        """
        joint: list[float] = []
        total, at = 1.0, 0
        for drafts, length in sorted(lengths.items()):
            if drafts < 1 or not 1.0 <= length <= drafts + 1:
                raise ValueError(f"{drafts} drafts: accept length {length:g}; expected 1 to {drafts + 1}")
            if length < total * (1.0 - NOISE):
                raise ValueError(
                    f"{drafts} drafts: accept length {length:g} after {total:g} with {at}; it cannot fall with more drafts"
                )
            length = max(length, total)
            joint += _geometric(length - total, drafts - at, joint[-1] if joint else 1.0)
            total, at = length, drafts
        # printed lengths are rounded, so an increment may rise by a hair
        for index in range(1, len(joint)):
            joint[index] = min(joint[index], joint[index - 1])
        return cls(tuple(joint))

    @property
    def num_measured(self) -> int:
        return len(self.joint)

    @property
    def conditional(self) -> tuple[float, ...]:
        before = (1.0, *self.joint[:-1])
        return tuple(share / earlier if earlier > 0.0 else 0.0 for share, earlier in zip(self.joint, before, strict=True))

    def length(self, num_drafted: int) -> Length:
        """AL at `num_drafted` drafts (0: exactly 1)."""
        known = self.joint[:num_drafted]
        value = 1.0 + sum(known)
        error = self._sampling_error(known)
        low, high = max(1.0, value - error), min(value + error, 1.0 + num_drafted)
        more = num_drafted - len(known)
        if more <= 0:
            return Length(value=value, low=low, high=high)
        last, shares = self.joint[-1], self.conditional
        best = max(shares[-2:])
        expected = last * _series(shares[-1], more)
        return Length(
            value=value + expected, low=low + expected / 2, high=max(high, value) + last * _series(best, more), is_extrapolated=True
        )

    def prolonged(self, num_drafted: int) -> AcceptanceCurve:
        """By value, up to `num_drafted` positions: the last conditional acceptance goes on."""
        last = self.conditional[-1]
        more = tuple(self.joint[-1] * last**power for power in range(1, num_drafted - self.num_measured + 1))
        return AcceptanceCurve(joint=(*self.joint, *more), num_rounds=self.num_rounds) if more else self

    def levers(self, num_drafted: int, needed: float) -> tuple[Lever, ...]:
        """For every position, what its conditional acceptance must be for AL(`num_drafted`) to reach `needed`, others as they are.

        AL is linear in each one: AL = A_i + c_i G_i, with G_i = a_(i - 1) (1 + c_(i + 1) + c_(i + 1) c_(i + 2) + ...). Best lever
        first. `num_drafted` is held to the positions measured.
        """
        shares = self.conditional[:num_drafted]
        total = 1.0 + sum(self.joint[:num_drafted])
        found = []
        for index, share in enumerate(shares):
            tail = 1.0 + sum(math.prod(shares[index + 1 : end]) for end in range(index + 2, len(shares) + 1))
            slope = math.prod(shares[:index]) * tail
            to = share + (needed - total) / slope if slope > 0.0 else math.inf
            found.append(Lever(position=index + 1, now=share, needed=to if to <= MOST_CONDITIONAL else None, gain=0.01 * slope))
        return tuple(sorted(found, key=lambda lever: -lever.gain))

    def lifted_everywhere(self, num_drafted: int, needed: float) -> float | None:
        """How much must be added to every position's conditional acceptance (up to 0.95 each); None where even that falls short."""
        shares = self.conditional[:num_drafted]

        def reached(add: float) -> float:
            lifted = [max(share, min(share + add, MOST_CONDITIONAL)) for share in shares]
            return 1.0 + sum(math.prod(lifted[:end]) for end in range(1, len(lifted) + 1))

        if reached(1.0) < needed:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if reached(middle) >= needed else (middle, high)
        return high

    def _sampling_error(self, known: Sequence[float]) -> float:
        """Half-width of the 95 % interval of 1 + accepted drafts: as measured, or from the spread of the count over rounds."""
        mean = sum(known)
        if self.half_width is not None and mean > 0.0:
            return self.half_width * mean / sum(self.joint)
        if not self.num_rounds or not known:
            return 0.0
        # E[N^2] = sum over i of (2 i - 1) P(N >= i)
        second = sum((2 * position - 1) * share for position, share in enumerate(known, start=1))
        return 1.96 * math.sqrt(max(second - mean * mean, 0.0) / self.num_rounds)


def _series(share: float, count: int) -> float:
    """share + share^2 + ... (`count` terms)."""
    return sum(share**power for power in range(1, count + 1))


def _geometric(total: float, count: int, before: float) -> list[float]:
    """`count` shares falling by one factor from `before`, adding up to `total`; each at most `before`."""
    if count == 1:
        return [min(total, before)]
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if before * _series(middle, count) < total else (low, middle)
    return [before * high**power for power in range(1, count + 1)]
