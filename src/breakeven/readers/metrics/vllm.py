"""Acceptance from vLLM's counters, which the embedded engine has too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from breakeven.acceptance import Acceptance
from breakeven.findings import Finding
from breakeven.readers.dumps import Window
from breakeven.readers.effects import Level
from breakeven.readers.figures import as_printed, known
from breakeven.readers.findings.curve import ceiling, dead_positions, floor
from breakeven.readers.findings.ranks import odd_rank
from breakeven.readers.reading import AcceptanceFound
from breakeven.readers.speedup import SHARE_CALLED_FLATTERED

__all__ = ["acceptance_from_counters"]

# Below this share of the drafts that all positions would make, some rounds drafted fewer.
FULL_DRAFTS = 0.95
MIN_ROUNDS_OF_A_RANK = 100
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"


def acceptance_from_counters(window: Window) -> tuple[AcceptanceFound | None, list[Finding]]:
    """What the window counted, and what is odd in it; nothing where speculation is not counted at all."""
    counts = _counts(window)
    if counts is None:
        return None, []
    findings = list(_contradictions(counts))
    rounds, drafted, accepted = float(counts.num_rounds), float(counts.num_drafted), float(counts.num_accepted)
    if counts.num_accepted > counts.num_drafted or counts.num_drafted < counts.num_rounds:
        # nothing can be worked out of counts that no engine can have had
        return AcceptanceFound(
            rounds=rounds, drafted=drafted, accepted=accepted, basis="counters", formula_status="contradictory"
        ), findings
    num_drafted = _drafts_a_round(counts)
    findings += _oddities(counts, num_drafted)
    if (odd := odd_rank(_by_engine(window))) is not None:
        findings.append(odd)
    error = math.sqrt(max(counts.draft_acceptance * (1 - counts.draft_acceptance), 0.0)) * (num_drafted or 1)
    return AcceptanceFound(
        accept_length=known(counts.per_round_length),
        uncertainty=known(2 * error / math.sqrt(counts.num_rounds)) if counts.num_rounds else None,
        per_step=known(counts.accept_length),
        draft_acceptance=known(counts.draft_acceptance),
        num_drafted=num_drafted,
        joint=counts.joint,
        conditional=tuple(known(rate) for rate in counts.conditional),
        drafted_share=known(counts.drafted_share),
        rounds=rounds,
        drafted=drafted,
        accepted=accepted,
        basis="counters",
        as_printed=as_printed(counts.per_round_length, num_drafted),
        formula_status="not needed",
    ), findings


def _counts(window: Window) -> Acceptance | None:
    drafts = window.total("vllm:spec_decode_num_drafts")
    drafted = window.total("vllm:spec_decode_num_draft_tokens")
    accepted = window.total("vllm:spec_decode_num_accepted_tokens")
    if not (math.isfinite(drafted) and math.isfinite(accepted)):
        return None
    if not math.isfinite(drafts):
        drafts = 0.0
    per_position: dict[int, float] = {}
    for labels, count in window.counters.get(_PER_POSITION, {}).items():
        position = dict(labels).get("position", "")
        if position.isascii() and position.isdigit() and len(position) < 4:
            per_position[int(position)] = per_position.get(int(position), 0.0) + count
    steps = window.total("breakeven:decode_steps")
    if not math.isfinite(steps):
        tokens = window.total("vllm:generation_tokens") - window.total("vllm:time_to_first_token_seconds_count") - accepted
        steps = max(drafts, tokens) if math.isfinite(tokens) and tokens > 0 else drafts
    return Acceptance(
        num_steps=round(steps),
        num_rounds=round(drafts),
        num_drafted=round(drafted),
        num_accepted=round(accepted),
        accepted_per_position=tuple(round(per_position.get(place, 0.0)) for place in range(max(per_position, default=-1) + 1)),
        exact_steps=False,
    )


def _drafts_a_round(counts: Acceptance) -> int | None:
    """Counters of several positions are one draft's: the longest of them is the number of drafts asked for."""
    if counts.accepted_per_position:
        return len(counts.accepted_per_position)
    per_round = counts.num_drafted / counts.num_rounds if counts.num_rounds else math.nan
    return round(per_round) if math.isfinite(per_round) and abs(per_round - round(per_round)) < 0.02 else None


def _oddities(counts: Acceptance, num_drafted: int | None) -> Iterator[Finding]:
    if not counts.num_rounds:
        return
    length = counts.per_round_length
    # where rounds drafted fewer, as by batch, a position may be empty because it was seldom drafted
    if counts.num_drafted >= FULL_DRAFTS * len(counts.accepted_per_position) * counts.num_rounds:
        yield from dead_positions(counts.joint, counts.num_rounds, "per-position counters over drafts")
    level = floor(length, counts.num_rounds, "from counters")
    if level is None and num_drafted:
        level = ceiling(length, num_drafted, length, "from counters")
    if level is not None:
        yield level
    if counts.drafted_share < SHARE_CALLED_FLATTERED:
        yield _undrafted(counts)


def _by_engine(window: Window) -> dict[str, Level]:
    """Accept length of every engine that counted enough drafts, with its counting error."""
    counts: dict[str, dict[str, float]] = {}
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        for labels, count in window.counters.get(f"vllm:spec_decode_{name}", {}).items():
            own = counts.setdefault(dict(labels).get("engine", ""), {})
            own[name] = own.get(name, 0.0) + count
    found = {}
    for engine, of in counts.items():
        rounds, drafted, accepted = (of.get(name, 0.0) for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"))
        if rounds >= MIN_ROUNDS_OF_A_RANK and drafted > 0:
            rate = min(accepted / drafted, 1.0)
            error = math.sqrt(rate * (1.0 - rate)) * (drafted / rounds) / math.sqrt(rounds)
            found[engine] = Level(mean=1.0 + accepted / rounds, error=error, rounds=rounds, num_lines=1)
    return found


def _undrafted(counts: Acceptance) -> Finding:
    return Finding(
        code="steps-without-drafts",
        severity="warning",
        confidence="medium",
        title=f"About {counts.drafted_share * 100:.0f} % of decode steps carried drafts: length "
        f"{counts.per_round_length:.2f} divides "
        f"by those only, over all steps it is {counts.accept_length:.2f}.",
        evidence=(f"{counts.num_rounds} drafts, about {counts.num_steps} decode steps (tokens generated less accepted ones)",),
        remedy="Judge speed by the length over all steps.",
    )


def _contradictions(counts: Acceptance) -> Iterator[Finding]:
    told = []
    if counts.num_accepted > counts.num_drafted:
        told.append(f"{counts.num_accepted} accepted of {counts.num_drafted} drafted tokens")
    if counts.num_drafted < counts.num_rounds:
        told.append(f"{counts.num_rounds} drafts with {counts.num_drafted} tokens in all: less than one each")
    positions = counts.accepted_per_position
    if positions:
        if sum(positions) != counts.num_accepted and abs(sum(positions) - counts.num_accepted) > 0.005 * counts.num_accepted:
            told.append(f"per-position counts sum to {sum(positions)}, accepted tokens are {counts.num_accepted}")
        if any(later > earlier for earlier, later in itertools.pairwise(positions)):
            told.append("a later position was accepted more often than an earlier one")
        if counts.num_rounds and counts.num_drafted > len(positions) * counts.num_rounds * 1.005:
            told.append(f"{counts.num_drafted} drafted tokens in {counts.num_rounds} drafts of at most {len(positions)}")
        if counts.num_rounds and positions[0] > counts.num_rounds:
            told.append(f"position 0 was accepted {positions[0]} times in {counts.num_rounds} drafts")
    if told:
        yield Finding(
            code="counters-contradict",
            severity="error",
            confidence="high",
            title="The counters contradict each other.",
            evidence=tuple(told),
            remedy="Check that both scrapes come from the same server, whole, and that no proxy sums or drops series.",
        )
