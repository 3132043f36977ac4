"""From a studied section to the figures of its reading."""

from __future__ import annotations

import math

import numpy as np

from breakeven.printed.definitions import DEFINITIONS
from breakeven.printed.formulas import DraftShape, chain_alpha
from breakeven.readers.findings import findings_of
from breakeven.readers.formula import Meaning
from breakeven.readers.reading import AcceptanceFound, Cut, FormulaReading, Phase, Point, Reading
from breakeven.readers.series import Floats, Mask
from breakeven.readers.speedup import with_speedup
from breakeven.readers.study import Group, Study, mean_of

__all__ = ["as_printed", "known", "log_reading"]

NUM_POINTS = 60
MAX_PHASES = 12


def as_printed(accept_length: float, num_drafted: int | None) -> dict[str, float]:
    """The rate that each release of SGLang and vLLM would print for a chain of so many drafts."""
    if not num_drafted or not math.isfinite(accept_length):
        return {}
    shape = DraftShape(num_drafted=num_drafted, num_steps=num_drafted, is_chain=True)
    return {
        row.releases: row.rate.rate(accept_length, shape)
        for row in DEFINITIONS
        if row.surface == "log" and row.engine in {"sglang", "vllm"} and row.rate is not None and row.presumed
    }


def log_reading(one: Study, source: str, part: int, *, break_even: float | None = None) -> Reading:
    columns, section = one.columns, one.section
    sources = np.unique(columns["source"][np.isfinite(columns["source"])])
    times = columns["time_s"][np.isfinite(columns["time_s"])]
    running = columns["running"]
    acceptance, on_speed = with_speedup(_acceptance(one), break_even)
    return Reading(
        source=source,
        kind="log",
        part=part,
        engine=section.who,
        version=str(section.version) if section.version else None,
        version_from=section.version_line.strip()[:300],
        settings=section.settings,
        num_lines=one.num_lines,
        excluded=one.excluded,
        duration_s=known(float(times.max() - times.min())) if len(times) else None,
        num_engines=max(1, len(sources)),
        acceptance=acceptance,
        throughput=known(mean_of(columns["throughput"][one.steady]) * max(1, len(sources)))
        if section.engine != "llama.cpp"
        else None,
        throughput_per_request=known(_per_request(one, np.ones(len(running), dtype=bool))),
        running=known(mean_of(running)) if section.engine != "llama.cpp" else None,
        max_running=known(float(np.nanmax(running))) if np.isfinite(running).any() and section.engine != "llama.cpp" else None,
        queued=known(mean_of(columns["queued"])),
        cuts=(*_cuts(one, one.by_running, "running"), *_cuts(one, one.by_time, "time"), *_cuts(one, one.by_context, "context")),
        phases=_phases(one),
        points=_points(one),
        findings=(*findings_of(one), *on_speed),
    )


def known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _acceptance(one: Study) -> AcceptanceFound | None:
    if not one.overall.num_lines:
        return _counts_alone(one)
    chosen = one.has_length
    columns, section, formula = one.columns, one.section, one.formula
    mean = one.overall.mean
    drafted, accepted = (float(np.nansum(columns[name][chosen])) for name in ("drafted", "accepted"))
    rounds = float(np.nansum(columns["rounds"][chosen]))
    has_counts = section.engine != "sglang" and drafted > 0
    if has_counts:
        mean = 1.0 + accepted / rounds if rounds > 0 else mean
        draft_acceptance = accepted / drafted
    else:
        drafts = _one_number(one)
        draft_acceptance = (mean - 1.0) / drafts if drafts else math.nan
    steps = columns["steps"][chosen & (columns["steps"] > 0)] if has_counts else np.empty(0)
    joint = tuple(total / section.position_rounds for total in section.positions) if section.position_rounds else ()
    if one.follows_batch:
        joint = joint[:1]  # what every round drafted; later positions are of some rounds only
    share = rounds / float(steps.sum()) if len(steps) else math.nan
    is_chain = section.engine != "sglang" or one.shape.is_chain is True or _may_be_chain(one)
    drafts_known = _one_number(one)
    return AcceptanceFound(
        accept_length=known(mean),
        uncertainty=known(2 * one.overall.error),
        mean_of_lines=known(mean_of(one.lengths)),
        per_step=known(1.0 + accepted / float(steps.sum())) if len(steps) else None,
        draft_acceptance=known(draft_acceptance),
        chain_acceptance=chain_alpha(min(max(mean, 1.0), drafts_known + 1.0), drafts_known)
        if drafts_known and is_chain and not has_counts
        else None,
        num_drafted=drafts_known,
        joint=joint,
        conditional=tuple(known(a / b) if b > 0 else None for b, a in zip((1.0, *joint), joint, strict=False)),
        drafted_share=known(min(share, 1.0)),
        rounds=known(rounds),
        drafted=drafted if has_counts else None,
        accepted=accepted if has_counts else None,
        basis="counts of log lines" if has_counts else "averages of log lines",
        as_printed=as_printed(mean, drafts_known) if is_chain else {},
        formula_status="not needed" if has_counts else formula.status,
        formulas=() if has_counts else tuple(_formula(meaning, mean) for meaning in formula.meanings[:12]),
    )


def _counts_alone(one: Study) -> AcceptanceFound | None:
    """Drafts were counted, and how many a round had is not known: the accepted share of them, and no accept length."""
    drafted, accepted = (float(np.nansum(one.columns[name])) for name in ("drafted", "accepted"))
    if not drafted > 0:
        return None
    return AcceptanceFound(
        draft_acceptance=accepted / drafted if accepted <= drafted else None,
        drafted=drafted,
        accepted=accepted,
        basis="counts of log lines",
        formula_status="not needed",
    )


def _one_number(one: Study) -> int | None:
    """Drafts a round, where it is known and the same for all."""
    return None if one.follows_batch or one.formula.status in {"ambiguous", "contradictory"} else one.num_drafted


def _may_be_chain(one: Study) -> bool:
    """Nothing says tree: then the depth is the number of drafts."""
    return one.shape.is_chain is None and one.shape.num_steps in {None, one.num_drafted}


def _formula(meaning: Meaning, accept_length: float) -> FormulaReading:
    drafts = meaning.shape.num_drafted
    return FormulaReading(
        formula=meaning.formula.value,
        releases=meaning.definition.releases,
        num_drafted=drafts,
        accept_length=known(accept_length),
        draft_acceptance=known((accept_length - 1.0) / drafts) if drafts else None,
    )


def _per_request(one: Study, lines: Mask) -> float:
    steady = lines & one.steady & (one.columns["running"] > 0)
    return mean_of(one.columns["throughput"][steady] / one.columns["running"][steady])


def _cuts(one: Study, groups: tuple[Group, ...], by: str) -> list[Cut]:
    return [
        Cut(
            by=by,  # type: ignore[arg-type]
            low=group.low,
            high=group.high,
            num_lines=int(group.lines.sum()),
            accept_length=known(group.level.mean),
            uncertainty=known(2 * group.level.error),
            throughput=known(mean_of(one.columns["throughput"][group.lines & one.steady])),
            throughput_per_request=known(_per_request(one, group.lines)),
        )
        for group in groups
    ]


def _phases(one: Study) -> tuple[Phase, ...]:
    if len(one.phases) > MAX_PHASES:
        return ()
    chosen = np.nonzero(one.has_length)[0]
    found = []
    for low, high in one.phases:
        lines = np.zeros(len(one.lengths), dtype=bool)
        lines[chosen[low:high]] = True
        phase = one.level_of(lines)
        times = _since_start(one.times)[lines]
        found.append(
            Phase(
                first_line=int(chosen[low]) + 1,
                num_lines=phase.num_lines,
                start_s=known(float(times[0])),
                end_s=known(float(times[-1])),
                accept_length=phase.mean,
                uncertainty=known(2 * phase.error),
            )
        )
    return tuple(found)


def _points(one: Study) -> tuple[Point, ...]:
    num_lines = len(one.lengths)
    if not num_lines:
        return ()
    times = _since_start(one.times)
    drafts = one.num_drafted if one.formula.status not in {"ambiguous", "contradictory"} else None
    found = []
    for piece in np.array_split(np.arange(num_lines), min(NUM_POINTS, num_lines)):
        lines = np.zeros(num_lines, dtype=bool)
        lines[piece] = True
        length = one.level_of(lines).mean
        drafted = float(np.nansum(one.columns["drafted"][piece]))
        acceptance = float(np.nansum(one.columns["accepted"][piece])) / drafted if drafted > 0 else math.nan
        if math.isnan(acceptance) and drafts:
            acceptance = (length - 1.0) / drafts
        found.append(
            Point(
                time_s=known(mean_of(times[piece])),
                num_lines=len(piece),
                accept_length=known(length),
                draft_acceptance=known(acceptance),
                running=known(mean_of(one.columns["running"][piece])),
                queued=known(mean_of(one.columns["queued"][piece])),
                throughput=known(mean_of(one.columns["throughput"][lines & one.steady])),
            )
        )
    return tuple(found)


def _since_start(times: Floats) -> Floats:
    finite = times[np.isfinite(times)]
    return times - finite.min() if len(finite) else times
