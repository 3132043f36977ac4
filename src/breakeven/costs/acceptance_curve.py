"""What a drafter's acceptance by position says of its accept length at any number of drafts, and what training must raise.

    joint a_i = P(first i drafts accepted)      conditional c_i = a_i / a_(i - 1)      AL(k) = 1 + a_1 + ... + a_k

Beyond the positions that were measured the conditional acceptance is not known. Published drafters keep theirs or lose some
with every position, so the value prolongs the last one, the upper bound the better of the last two, and the lower bound has
half of what the value adds.

Where only lengths are known, AL at fewer drafts lies between what no acceptance falls and what the first drafts alone would give.
The value has every position lose alike. Published drafters lose less at first: of 166 pairs of lengths in
benchmarks/data one in twenty lay more than half way from the value to the upper end, and few lay below it. So half of the way is
the bound on either side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = ["AcceptanceCurve", "Length", "Lever"]

# Conditional acceptance above this cannot be asked of training: published heads end well below it at any position.
MOST_CONDITIONAL = 0.95
# measured lengths may fall by this much from one number of drafts to the next by chance, or be as much too long
NOISE = 0.02
# of the way from a length that was filled in to the ends that lengths beside it leave
HALF_WAY = 0.5


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
    rounding: half-width of AL(k) that the digits of the figures given leave. known: the numbers of drafts whose length was given,
    where positions between them are filled in; empty where every position was.
    """

    joint: tuple[float, ...]
    num_rounds: int | None = None
    half_width: float | None = None
    rounding: float = 0.0
    known: tuple[int, ...] = ()

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
            ValueError: a length below 1 or above k + 1, or lengths that fall, or grow faster, with more drafts, beyond noise.
        """
        gaps: list[tuple[int, float]] = []
        total, at = 1.0, 0
        for drafts, length in sorted(lengths.items()):
            if drafts < 1 or not 1.0 <= length <= drafts + 1:
                raise ValueError(f"{drafts} drafts: accept length {length:g}; expected 1 to {drafts + 1}")
            if length < total * (1.0 - NOISE):
                raise ValueError(
                    f"{drafts} drafts: accept length {length:g} after {total:g} with {at}; it cannot fall with more drafts"
                )
            length = max(length, total)
            gaps.append((drafts - at, length - total))
            total, at = length, drafts
        means = _falling(gaps)
        joint: list[float] = []
        for (count, _), mean, after in zip(gaps, means, (*means[1:], 0.0), strict=True):
            joint += _filled(mean * count, count, joint[-1] if joint else 1.0, after)
            given = lengths[len(joint)]
            if abs(1.0 + sum(joint) - given) > NOISE * given:
                raise ValueError(
                    f"{len(joint)} drafts: accept length {given:g} does not fit the others: a later draft is accepted no oftener "
                    f"than an earlier one, so it would be about {1.0 + sum(joint):.2f}; they are not of one drafter on like prompts"
                )
        return cls(tuple(joint), known=tuple(sorted(lengths)))

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
        error = math.hypot(self._sampling_error(known), self._rounding(known))
        least, most = self._filled_between(len(known), value)
        low = max(1.0, value - math.hypot(error, value - least))
        high = min(value + math.hypot(error, most - value), 1.0 + num_drafted)
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
        return replace(self, joint=(*self.joint, *more)) if more else self

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

    def _filled_between(self, num_drafted: int, value: float) -> tuple[float, float]:
        """Bounds of AL there: half of the way to what the lengths given beside it leave; the value where it was given itself."""
        if not self.known or num_drafted == 0 or num_drafted in self.known:
            return value, value
        before = max((k for k in self.known if k < num_drafted), default=0)
        after = min((k for k in self.known if k > num_drafted), default=len(self.joint))
        start = 1.0 + sum(self.joint[:before])
        room, count = sum(self.joint[before:after]), num_drafted - before
        least = start + count * room / (after - before)
        most = start + min(count * (self.joint[before - 1] if before else 1.0), room)
        return value - HALF_WAY * max(value - least, 0.0), value + HALF_WAY * max(most - value, 0.0)

    def _rounding(self, known: Sequence[float]) -> float:
        return self.rounding * sum(known) / sum(self.joint) if self.rounding and sum(self.joint) > 0.0 else self.rounding

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


def _falling(gaps: Sequence[tuple[int, float]]) -> list[float]:
    """Mean acceptance of each gap of `count` positions that adds `growth`, not rising: neighbours that do are pooled."""
    pools: list[tuple[int, float, int]] = []  # positions, growth, gaps
    for count, growth in gaps:
        pools.append((count, growth, 1))
        while len(pools) > 1 and pools[-1][1] / pools[-1][0] > pools[-2][1] / pools[-2][0]:
            later, before = pools.pop(), pools.pop()
            pools.append((before[0] + later[0], before[1] + later[1], before[2] + later[2]))
    return [growth / count for count, growth, num in pools for _ in range(num)]


def _filled(total: float, count: int, before: float, least: float) -> list[float]:
    """`count` shares falling by one factor from `before`, adding up to `total`; towards `least` where they would end below it."""
    shares = _geometric(total, count, before)
    if shares[-1] >= least:
        return shares
    return [least + share for share in _geometric(total - count * least, count, max(before - least, 0.0))]


def _geometric(total: float, count: int, before: float) -> list[float]:
    """`count` shares falling by one factor from `before`, adding up to `total`; each at most `before`."""
    if count == 1:
        return [min(total, before)]
    if total <= 0.0 or before <= 0.0:
        return [0.0] * count
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if before * _series(middle, count) < total else (low, middle)
    return [before * high**power for power in range(1, count + 1)]
