"""Where two texts of one prompt part, and whether one kind of pair parts sooner than another. The prompt is the unit.

Tokens of one answer are not independent draws: once two greedy texts have parted they have nothing to do with each other any more.
So an answer counts once, by the position of its first difference, and texts that never part are censored at their end.
"""

from __future__ import annotations

from collections.abc import Sequence

from scipy.special import bdtrc, betaincinv

__all__ = ["kaplan_meier", "share_lower", "share_upper", "sign_test"]


def sign_test(more: int, fewer: int) -> float:
    """One-sided p: the chance of at least `more` of `more + fewer` fair coins. 1 where nothing was thrown.

    For prompts that can each go one of two ways this is exact whatever the rates are, prompt by prompt, as long as both ways are
    equally likely under the hypothesis (the classical sign test).
    """
    thrown = more + fewer
    return float(bdtrc(more - 1, thrown, 0.5)) if more else 1.0


def share_upper(count: int, total: int, alpha: float) -> float:
    """One-sided upper bound of a share at level 1 - alpha (Clopper & Pearson, Biometrika 26, 1934); 1 where there is no data."""
    if count >= total:
        return 1.0
    return float(betaincinv(count + 1, total - count, 1.0 - alpha))


def share_lower(count: int, total: int, alpha: float) -> float:
    """The same from below; 0 where there is no data."""
    if count <= 0:
        return 0.0
    return float(betaincinv(count, total - count + 1, alpha))


def kaplan_meier(departures: Sequence[int | None], lengths: Sequence[int], at: Sequence[int]) -> tuple[float, ...]:
    """Share of texts that still agree after `at` tokens (Kaplan & Meier, JASA 53, 1958).

    departures: position of the first difference, None where there is none within the `lengths` tokens compared.
    """
    events: dict[int, int] = {}
    ends = [length if position is None else position for position, length in zip(departures, lengths, strict=True)]
    for position in departures:
        if position is not None:
            events[position] = events.get(position, 0) + 1
    surviving = []
    for limit in at:
        share = 1.0
        for position in sorted(events):
            if position < limit:
                # a text that ended right here, undivided, was still watched when this token came
                at_risk = sum(
                    end > position or (end == position and where is not None) for end, where in zip(ends, departures, strict=True)
                )
                share *= 1.0 - events[position] / at_risk
        surviving.append(share)
    return tuple(surviving)
