"""From counts of prompts to one of four outcomes. What is not shown is undecided."""

from __future__ import annotations

import math
from dataclasses import dataclass

from breakeven.stats.departures import share_lower, share_upper, sign_test
from breakeven.verdict.equality.result import EqualityOutcome

__all__ = ["ALPHA", "MIN_PROMPTS", "Counts", "Decision", "decide"]

# A sound arm is called faulty in at most one check of a hundred, whatever plain does to itself.
ALPHA = 0.01
# An arm is called sound only where a bound that fails one time in twenty says so.
SOUND_ALPHA = 0.05
# Below, nothing is decided: eight prompts that all agree still leave a third of all prompts open.
MIN_PROMPTS = 8
# Sound: by such a bound at most this share of prompts parts at a difference that is no near tie,
MAX_FAR_SHARE = 0.10
# or speculation is the first to part at most so many times as often as plain itself.
MAX_TIMES_PLAIN = 2.0
MAX_FAILED_SHARE = 0.10
MAX_DEGENERATE_SHARE = 0.50
# Without log-probabilities and in few bits: ties part texts once in a hundred tokens or more, so this is more than rounding.
GROSS_HAZARD = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Prompts, except `num_positions`: how many tokens of speculation's answers were compared.

    left_first, plain_left_first: speculation left the first plain answer before the second plain one did, or the other way round.
    far_first, plain_far_first: of these, at a difference that is no near tie; None where no margin is known.
    num_unknown: of the differences of speculation, those without a margin.
    exact: the engine computes in float32, where ties are rare.
    """

    num_prompts: int
    num_failed: int
    num_degenerate: int
    num_parted: int
    num_far: int
    plain_num_far: int
    num_unknown: int
    num_positions: int
    left_first: int
    plain_left_first: int
    far_first: int | None
    plain_far_first: int | None
    exact: bool

    @property
    def p_value(self) -> float:
        return sign_test(self.left_first, self.plain_left_first)

    @property
    def p_value_far(self) -> float | None:
        if self.far_first is None or self.plain_far_first is None:
            return None
        return sign_test(self.far_first, self.plain_far_first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    outcome: EqualityOutcome
    reason: str
    remedy: str = ""


_MORE = "Ask more prompts (--num-prompts)"
_FAULT_REMEDY = (
    "Do not serve it before this is understood: look for a lossy acceptance rule (rejection_sample_method, accept thresholds), "
    "forced acceptance left on, or another dtype, quantization or KV cache than plain's; then for a known fault of the release."
)


def decide(counts: Counts) -> Decision:
    """The outcome and its reason, for prompts that are as good as drawn at random from the traffic."""
    asked = counts.num_prompts + counts.num_failed
    if counts.num_failed > MAX_FAILED_SHARE * asked:
        return _undecided(f"{counts.num_failed} of {asked} prompts failed", "See the errors in answers.jsonl of the run.")
    if counts.num_prompts < MIN_PROMPTS:
        return _undecided(f"only {counts.num_prompts} prompts could be compared; at least {MIN_PROMPTS} are needed", f"{_MORE}.")
    if counts.num_degenerate > MAX_DEGENERATE_SHARE * counts.num_prompts:
        return _undecided(
            f"{counts.num_degenerate} of {counts.num_prompts} plain answers loop or are empty, and loops hide differences",
            "Mend the plain arm first (its chat template, its weights), or ask prompts that it answers.",
        )
    if not counts.num_parted:
        most = share_upper(0, counts.num_prompts, SOUND_ALPHA)
        reason = f"all answers are the same; at most {most * 100:.0f} % of such prompts differ (95 %)"
        return Decision(outcome="equal", reason=reason)
    return _fault(counts) or _sound(counts) or _open(counts)


def _fault(counts: Counts) -> Decision | None:
    p_far = counts.p_value_far
    if p_far is not None:
        if p_far > ALPHA:
            return None
        return Decision(
            outcome="fault",
            reason=(
                f"it leaves plain's text where plain clearly prefers another token, first in {counts.far_first} prompts against "
                f"{counts.plain_far_first} of plain itself (p = {p_far:.1g})"
            ),
            remedy=_FAULT_REMEDY,
        )
    if counts.p_value > ALPHA:
        return None
    hazard = share_lower(counts.num_parted, counts.num_positions, ALPHA)
    if not counts.exact and hazard <= GROSS_HAZARD:
        return None
    return Decision(
        outcome="fault",
        reason=(
            f"it leaves plain's text first in {counts.left_first} prompts against {counts.plain_left_first} of plain itself "
            f"(p = {counts.p_value:.1g}), "
            + ("in float32, where ties are rare" if counts.exact else f"at least once in {1 / hazard:.0f} tokens")
        ),
        remedy=_FAULT_REMEDY,
    )


def _sound(counts: Counts) -> Decision | None:
    if counts.far_first is not None and counts.num_far > counts.plain_num_far:
        return None
    far_share = share_upper(counts.num_far, counts.num_prompts, SOUND_ALPHA)
    if counts.far_first is not None and not counts.num_unknown and far_share <= MAX_FAR_SHARE:
        return Decision(
            outcome="numerics",
            reason=(
                f"{counts.num_parted - counts.num_far} of {counts.num_parted} differences are near ties of plain's own "
                f"probabilities; at most {far_share * 100:.0f} % of such prompts part at anything else (95 %)"
            ),
        )
    times = _times_plain(counts)
    if times <= MAX_TIMES_PLAIN:
        return Decision(
            outcome="numerics",
            reason=(
                f"it leaves plain's text first in {counts.left_first} prompts, plain itself in {counts.plain_left_first}: at most "
                f"{times:.1f} times as often (95 %)"
            ),
        )
    return None


def _times_plain(counts: Counts) -> float:
    """Upper bound of how many times as often speculation is the first to part, from the share of coins that fell its way."""
    thrown = counts.left_first + counts.plain_left_first
    share = share_upper(counts.left_first, thrown, SOUND_ALPHA)
    return share / (1.0 - share) if share < 1.0 else math.inf


def _open(counts: Counts) -> Decision:
    p_far = counts.p_value_far
    if p_far is None and counts.p_value <= ALPHA:
        return _undecided(
            f"it leaves plain's text first in {counts.left_first} prompts against {counts.plain_left_first} of plain itself "
            f"(p = {counts.p_value:.1g}), but this server tells no log-probabilities, so near ties in the shapes of speculation "
            "cannot be told from a fault",
            "Repeat with dtype float32, where ties are rare, or on a server that tells log-probabilities.",
        )
    if counts.num_far > counts.plain_num_far:
        plural = "prompt parts" if counts.num_far == 1 else "prompts part"
        return _undecided(f"{counts.num_far} {plural} where plain clearly prefers another token, too few to tell", f"{_MORE}.")
    return _undecided(
        f"it leaves plain's text first in {counts.left_first} prompts, plain itself in {counts.plain_left_first}: too few to tell",
        f"{_MORE}, or longer answers (--max-tokens).",
    )


def _undecided(reason: str, remedy: str) -> Decision:
    return Decision(outcome="undecided", reason=reason, remedy=remedy)
