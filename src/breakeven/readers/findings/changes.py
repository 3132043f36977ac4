"""Accept length that changes with what it should not depend on: the running batch, time, context, what came from a cache.

Looked for in this order, each with what was found before taken out: batch, collapse, context, drift. So a ramp of load is not
called a drift, and a collapse is not called a fall with context, unless nothing but its place at the end makes it one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from breakeven.findings import Finding
from breakeven.readers.effects import MIN_BLOCKS, Level, judge, level
from breakeven.readers.phases import phase_edges
from breakeven.readers.series import Floats, Places
from breakeven.readers.study import Group, Study

__all__ = ["changes", "collapse"]

# A collapse takes this share of the accepted drafts away; less is a shift.
COLLAPSE_SHARE = 0.25
# "back": within this share of what was lost.
RECOVERY_SHARE = 0.25
# One odd line among many is an odd line.
MIN_COLLAPSE_LINES = 3
DRIFT_STANDARD_ERRORS = 4.0
MAX_PHASES = 12
_BATCH_REMEDY = (
    "At temperature 0 accept length does not depend on how many requests run, so suspect the attention backend or the CUDA-graph "
    "path of the drafter at larger batches: serve the same prompts with another attention backend, then without CUDA graphs, and "
    "compare (breakeven read A B). Then take the other backend or upgrade. Rule out first that busy hours bring other prompts."
)


def changes(one: Study) -> Iterator[Finding]:
    chosen = one.has_length
    if chosen.sum() < 2:
        return
    if one.follows_batch:
        yield _follows_batch(one)
        return
    by_batch = list(_falls(one, one.by_running, "batch"))
    yield from by_batch
    lengths = _without(one, one.by_running) if by_batch else one.lengths
    collapses = list(_collapses(one, lengths))
    flat = replace(one, lengths=lengths)
    by_context = list(_falls(flat, tuple(replace(g, level=flat.level_of(g.lines)) for g in one.by_context), "context"))
    # a low end that nothing but its place in the log speaks for is where contexts had grown long
    if collapses and not (by_context and collapses[0].confidence == "low"):
        yield from collapses
        return
    yield from by_context
    if not by_context:
        yield from _drift(flat)


def _follows_batch(one: Study) -> Finding:
    """Nothing that changes with the batch is odd then, nor what follows from it over time and context."""
    shown = "; ".join(f"{_range(group, 'batch')}: {group.level}" for group in one.by_running[:8] if group.level.num_lines)
    return Finding(
        code="drafts-follow-batch",
        severity="info",
        confidence="high",
        title="The number of drafts changes with the running batch, so accept length does too: no one figure is the drafter's.",
        evidence=(f"accept length by {shown}" if shown else "its settings say so",),
        remedy="Compare lengths at one batch only. Acceptance by position is shown for the first draft, which every round had.",
    )


def _falls(one: Study, groups: Sequence[Group], what: str) -> Iterator[Finding]:
    """The lowest group against the one that lies furthest below it."""
    # lines of real traffic scatter more than counting does, which a few of them cannot show; a batch is chosen, contexts happen
    least = 1 if what == "batch" else MIN_BLOCKS
    groups = [group for group in groups if group.level.num_lines >= least]
    if len(groups) < 2:
        return
    first = groups[0].level
    below = [group for group in groups[1:] if group.level.mean < first.mean and judge(first, group.level) != "noise"]
    effects = [group for group in below if judge(first, group.level) == "effect"]
    if what == "context":
        below = []  # contexts of a log are seldom alike in kind: only an effect is worth a word
    worst = min(effects or below, key=lambda group: group.level.mean, default=None)
    if worst is None:
        return
    fall = first.mean - worst.level.mean
    errors = math.hypot(first.error, worst.level.error)
    decided = bool(effects)
    if not decided and fall < 0.75 * errors:
        return
    shown = "; ".join(f"{_range(group, what)}: {group.level} on {group.level.num_lines} lines" for group in groups[:8])
    name = "the running batch" if what == "batch" else "the context"
    title = (
        f"Accept length falls with {name}: {first.mean:.2f} at {_range(groups[0], what)}, {worst.level.mean:.2f} at "
        f"{_range(worst, what)} ({-fall:+.2f})."
        if decided
        else f"Accept length may fall with {name} ({-fall:+.2f}), but these lines do not decide it."
    )
    yield Finding(
        code=f"accept-length-falls-with-{what}" if decided else f"accept-length-may-fall-with-{what}",
        severity="warning" if decided else "info",
        confidence=("high" if fall > 4 * errors else "medium") if decided else "low",
        title=title,
        evidence=(
            shown,
            f"difference {fall:.2f}; two standard errors {2 * errors:.2f}; runs of the same thing differ by up to 2.5 %",
            *([_confounded(one)] if what == "batch" and _confounded(one) else []),
        ),
        remedy=(_BATCH_REMEDY if what == "batch" else _CONTEXT_REMEDY)
        if decided
        else f"Read a longer log, with at least {_lines_needed(first, worst.level)} lines of each kind.",
    )


_CONTEXT_REMEDY = (
    "Compare the drafter's max_position_embeddings and RoPE settings (theta, scaling) with the target's, and the length it was "
    "trained at with what is served. An abrupt fall at one length is a limit, a slow one is training on short text. Rule out that "
    "long requests are of another kind."
)


def _lines_needed(one: Level, other: Level) -> int:
    difference = abs(one.mean - other.mean)
    factor = (2.0 * math.hypot(one.error, other.error) / difference) ** 2 * 1.5
    return max(2, math.ceil(factor * max(one.num_lines, other.num_lines)))


def _confounded(one: Study) -> str:
    running = one.columns["running"]
    known = np.isfinite(running) & one.has_length
    if known.sum() < 8 or np.ptp(running[known]) == 0:
        return ""
    order = np.arange(known.sum())
    if abs(float(np.corrcoef(order, running[known])[0, 1])) < 0.7:
        return ""
    return "batch and time move together in this log; running small batches again at the end would tell them apart"


def _range(group: Group, what: str) -> str:
    low, high = f"{group.low:.0f}", f"{group.high:.0f}"
    span = low if low == high else f"{low} to {high}"
    return f"batch {span}" if what == "batch" else f"{span} tokens a request"


def _without(one: Study, groups: Sequence[Group]) -> Floats:
    """Lengths with the means of groups levelled out."""
    flat = one.lengths.copy()
    for group in groups:
        if group.level.num_lines:
            flat[group.lines] += one.overall.mean - group.level.mean
    return flat


def _collapses(one: Study, lengths: Floats) -> Iterator[Finding]:
    """A stretch far below those around it, and what happened at its ends."""
    chosen = np.nonzero(np.isfinite(lengths))[0]
    edges = phase_edges(lengths[chosen], one.rounds[chosen], one.num_drafted)
    if not 2 <= len(edges) <= MAX_PHASES:
        return
    levels = [level(lengths[chosen[low:high]], one.rounds[chosen[low:high]], one.num_drafted) for low, high in edges]
    place = collapse(levels)
    if place is None or levels[place].num_lines < min(MIN_COLLAPSE_LINES, max(1, len(chosen) // 12)):
        return
    low_lines = chosen[edges[place][0] : edges[place][1]]
    before_lines = chosen[edges[place - 1][0] : edges[place - 1][1]]
    recovered = place + 1 < len(levels)
    flushed = recovered and _flush_between(one, int(low_lines[0]), int(chosen[edges[place + 1][0]]))
    cached = (_cached_share(one, before_lines), _cached_share(one, low_lines))
    reuse_grew = cached[1] > cached[0] + 0.1
    host_cache = one.section.settings.get("enable_hierarchical_cache") == "True"
    evidence = ["accept length by phase: " + ", ".join(f"{phase} on {phase.num_lines} lines" for phase in levels)]
    if flushed:
        evidence.append("the log says that the cache was flushed between the low phase and the recovery")
    if np.isfinite(cached).all():
        evidence.append(f"prompt tokens from the cache: {cached[0] * 100:.0f} % before, {cached[1] * 100:.0f} % in the low phase")
    if host_cache:
        evidence.append("enable_hierarchical_cache=True in the banner")
    is_cache = flushed or reuse_grew or host_cache
    before, low = levels[place - 1].mean, levels[place].mean
    after = f" and is back at {levels[place + 1].mean:.2f} {'after a cache flush' if flushed else 'later'}" if recovered else ""
    yield Finding(
        code="accept-length-falls-after-cache-reuse" if is_cache else "accept-length-collapses",
        severity="error",
        confidence="high" if flushed and (reuse_grew or host_cache) else "medium" if is_cache or recovered else "low",
        title=f"Accept length collapses from {before:.2f} to {low:.2f}{after}.",
        evidence=tuple(evidence),
        remedy="Prefixes that come from a cache bring back the target's keys and values but not the drafter's: flush the cache and "
        "watch the accept length come back, then serve with the host cache off (HiCache, KV offload) or upgrade to a release that "
        "restores the drafter's cache too. Training does not help."
        if is_cache
        else "Flush the prefix cache: if the accept length comes back, cached prefixes lack the drafter's keys and values. If not, "
        "see what else changed then: kind of traffic, context length, batch.",
    )


def collapse(levels: Sequence[Level]) -> int | None:
    """The phase that lies far below the one before it, and below the one after it if there is one; None where there is none."""
    for place in range(1, len(levels)):
        before, low = levels[place - 1].mean, levels[place].mean
        lost = before - low
        if lost < COLLAPSE_SHARE * (before - 1.0) or lost <= 0:
            continue
        if place + 1 == len(levels) or levels[place + 1].mean >= before - RECOVERY_SHARE * lost:
            return place
    return None


def _flush_between(one: Study, first: int, last: int) -> bool:
    grain = one.section.series.grain
    dropped = one.section.series.num_appended // grain - len(one.lengths)
    rows = [event.row // grain - max(dropped, 0) for event in one.section.events if event.kind == "cache flushed"]
    return any(first < row <= last + 1 for row in rows)


def _cached_share(one: Study, lines: Places) -> float:
    cached, new = (float(np.nansum(one.columns[name][lines])) for name in ("cached_tokens", "new_tokens"))
    return cached / (cached + new) if cached + new > 0 else math.nan


def _drift(one: Study) -> Iterator[Finding]:
    """The last third against the first: a change that goes on, or one that came once."""
    chosen = np.nonzero(one.has_length)[0]
    if len(chosen) < 6:
        return
    thirds = np.array_split(chosen, 3)
    first, middle, last = (level(one.lengths[part], one.rounds[part], one.num_drafted) for part in thirds)
    if judge(first, last) != "effect":
        return
    change = last.mean - first.mean
    errors = math.hypot(first.error, last.error)
    on_the_way = min(first.mean, last.mean) - errors <= middle.mean <= max(first.mean, last.mean) + errors
    if abs(change) < DRIFT_STANDARD_ERRORS * errors or not on_the_way:
        return
    falls = change < 0
    yield Finding(
        code="accept-length-drifts",
        severity="warning" if falls else "info",
        confidence="high" if abs(change) > 6 * errors else "medium",
        title=f"Accept length {'falls' if falls else 'rises'} over time: {first.mean:.2f} in the first third of the log, "
        f"{last.mean:.2f} in the last ({change:+.2f}).",
        evidence=(
            f"thirds: {first}, {middle}, {last}; runs of the same thing differ by up to 2.5 %",
            "changes of the running batch are taken out",
        ),
        remedy="Flush the prefix cache, or restart one replica and compare it with the others: if acceptance comes "
        "back, state in the "
        "server is at fault (draft cache, memory). If it stays, the traffic has changed: compare prompts of the two ends."
        if falls
        else "Compare the kinds of prompts at the two ends before taking either figure for the deployment's.",
    )
