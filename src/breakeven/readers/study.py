"""One section of a log with everything that figures and findings are taken from, computed once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from breakeven.printed.definitions import draft_shape
from breakeven.printed.formulas import DraftShape
from breakeven.readers.effects import Level, level
from breakeven.readers.formula import Formula, infer_formula
from breakeven.readers.phases import phase_edges
from breakeven.readers.sections import Section
from breakeven.readers.series import Floats, Mask
from breakeven.readers.warmup import Exclusions, exclusions

__all__ = ["Group", "Study", "declared_shape", "mean_of", "study"]

MAX_EXACT_GROUPS = 8
# A batch seen on fewer lines than this share joins a range of batches.
MIN_GROUP_SHARE = 0.02
NUM_TIME_CUTS = 8
# Stamps between lines, before their pace is believed; vLLM's interval where nobody chose another.
MIN_GAPS, USUAL_INTERVAL_S = 2, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines of one kind: `low` to `high` of what they are grouped by."""

    low: float
    high: float
    lines: Mask
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Columns are those of the kept lines. lengths: true accept lengths, NaN on lines without drafts. phases: index ranges within
    the lines that have a length."""

    section: Section
    columns: Mapping[str, Floats]
    lengths: Floats
    steady: Mask
    num_lines: int
    excluded: tuple[str, ...]
    shape: DraftShape
    formula: Formula
    settled_by_company: bool
    num_drafted: int | None
    adds_bonus: bool
    overall: Level
    by_running: tuple[Group, ...]
    by_context: tuple[Group, ...]
    by_time: tuple[Group, ...]
    phases: tuple[tuple[int, int], ...]

    @property
    def rounds(self) -> Floats:
        return self.columns["rounds"]

    @property
    def has_length(self) -> Mask:
        return np.isfinite(self.lengths)

    @property
    def follows_batch(self) -> bool:
        """The settings say that the number of drafts changes with the running batch."""
        settings = self.section.settings
        return settings.get("speculative_adaptive") == "True" or "drafts_by_batch" in settings

    @property
    def times(self) -> Floats:
        return self.columns["time_s"]

    def level_of(self, lines: Mask) -> Level:
        chosen = lines & self.has_length
        return level(self.lengths[chosen], self.rounds[chosen], self.num_drafted)


def study(section: Section, *, company: Formula | None = None) -> Study:
    """`company`: the formula that all logs read together leave, taken where this one alone is ambiguous."""
    table = section.series.table()
    out: Exclusions = exclusions(table, section.engine)
    columns = {name: values[out.kept] for name, values in table.items()}
    shape = declared_shape(section)
    formula = infer_formula(section.engine, section.version, shape, section.pairs)
    settled_by_company = formula.status == "ambiguous" and company is not None and _is_among(company, formula)
    if settled_by_company and company is not None:
        formula = company
    num_drafted = shape.num_drafted or (formula.shape.num_drafted if formula.shape else None) or len(section.positions) or None
    adds_bonus = _adds_bonus(section)
    lengths = columns["length"] + (1.0 if adds_bonus else 0.0)
    if section.engine == "llama.cpp":
        lengths, columns = _from_counts(lengths, columns)
    if section.engine == "vllm" and shape.num_drafted:
        lengths, columns = _from_drafted(lengths, columns, shape.num_drafted)
    if section.engine == "vllm":
        columns = _steps_from_stamps(columns)
    has_length = np.isfinite(lengths)
    rounds = columns["rounds"]
    overall = level(lengths[has_length], rounds[has_length], num_drafted)
    running = columns["running"]
    with np.errstate(invalid="ignore", divide="ignore"):
        context = columns["kv_tokens"] / np.where(running > 0, running, np.nan)
    half_done = Study(
        section=section,
        columns=columns,
        lengths=lengths,
        steady=out.steady[out.kept],
        num_lines=section.series.num_appended,
        excluded=out.reasons,
        shape=shape,
        formula=formula,
        settled_by_company=settled_by_company,
        num_drafted=num_drafted,
        adds_bonus=adds_bonus,
        overall=overall,
        by_running=(),
        by_context=(),
        by_time=(),
        phases=tuple(phase_edges(lengths[has_length], rounds[has_length], num_drafted)),
    )
    return _with_groups(half_done, running, context)


def _is_among(company: Formula, formula: Formula) -> bool:
    return len(company.meanings) == 1 and company.meanings[0].sense in {meaning.sense for meaning in formula.meanings}


def _with_groups(one: Study, running: Floats, context: Floats) -> Study:
    return replace(
        one,
        by_running=_groups(one, running, _batch_classes(running)) if one.section.engine != "llama.cpp" else (),
        by_context=_groups(one, context, _powers_of_two(context)),
        by_time=_groups(one, *_time_classes(one.times)),
    )


def declared_shape(section: Section) -> DraftShape:
    """What the launch settings say about drafts a round, as far as they do."""
    settings = section.settings

    def number(name: str) -> int | None:
        text = settings.get(name, "")
        return int(text) if text.isdigit() and 0 < int(text) < 1000 else None

    if section.engine == "sglang":
        return draft_shape(
            "sglang",
            steps=number("speculative_num_steps"),
            topk=number("speculative_eagle_topk"),
            draft_tokens=number("speculative_num_draft_tokens"),
        )
    drafts = number("num_speculative_tokens") or len(section.positions) or None
    return draft_shape(section.engine, steps=None, topk=None, draft_tokens=drafts)


def _adds_bonus(section: Section) -> bool:
    """vLLM up to 0.8.5 left the bonus token out of its length: then the length itself is the sum of the per-position rates."""
    seen = section.position_lines
    return section.engine == "vllm" and seen["no bonus in length"] > seen["bonus in length"]


def _from_counts(lengths: Floats, columns: dict[str, Floats]) -> tuple[Floats, dict[str, Floats]]:
    """llama.cpp before PR 24536 prints counts alone: every step of a request then stands for a round."""
    steps, accepted = columns["steps"], columns["accepted"]
    with np.errstate(invalid="ignore", divide="ignore"):
        derived = 1.0 + accepted / np.where(steps > 0, steps, np.nan)
    missing = ~np.isfinite(lengths)
    rounds = np.where(missing & np.isfinite(derived), steps, columns["rounds"])
    return np.where(missing, derived, lengths), columns | {"rounds": rounds}


def _from_drafted(lengths: Floats, columns: dict[str, Floats], num_drafted: int) -> tuple[Floats, dict[str, Floats]]:
    """Lines with counts alone: with the number of drafts a round they give the rounds and so the length."""
    drafted, accepted = columns["drafted"], columns["accepted"]
    missing = ~np.isfinite(lengths) & (drafted > 0)
    rounds = np.where(missing, drafted / num_drafted, columns["rounds"])
    with np.errstate(invalid="ignore", divide="ignore"):
        derived = 1.0 + accepted / rounds
    return np.where(missing, derived, lengths), columns | {"rounds": rounds}


def _steps_from_stamps(columns: dict[str, Floats]) -> dict[str, Floats]:
    """vLLM up to 0.9 prints no throughput of drafts to tell the interval by: it is 10 s, or shorter if the stamps say so.

    Stamps further apart are of lines that were filtered out in between."""
    times, throughput, rounds = columns["time_s"], columns["throughput"], columns["rounds"]
    missing = ~np.isfinite(columns["steps"]) & (rounds > 0) & np.isfinite(throughput)
    gaps = [np.diff(times[columns["source"] == source]) for source in np.unique(columns["source"])]
    known = np.concatenate(gaps) if gaps else np.empty(0)
    known = known[np.isfinite(known) & (known > 0)]
    if not missing.any() or len(known) < MIN_GAPS:
        return columns
    interval_s = min(float(np.median(known)), USUAL_INTERVAL_S)
    steps = np.maximum(throughput * interval_s - columns["accepted"], rounds)
    return columns | {"steps": np.where(missing, steps, columns["steps"])}


def _groups(one: Study, values: Floats, classes: Floats) -> tuple[Group, ...]:
    found = []
    for label in np.unique(classes[np.isfinite(classes)]):
        lines = classes == label
        known = values[lines & np.isfinite(values)]
        if len(known):
            found.append(Group(low=float(known.min()), high=float(known.max()), lines=lines, level=one.level_of(lines)))
    return tuple(sorted(found, key=lambda group: group.low))


def _batch_classes(running: Floats) -> Floats:
    """Each batch of its own where there are few, else powers of two: 1, 2, 3 to 4, 5 to 8, ..."""
    busy = running[np.isfinite(running) & (running > 0)]
    distinct, counts = np.unique(busy, return_counts=True)
    classes = np.where(running > 0, running, np.nan)
    frequent = counts >= max(1.0, MIN_GROUP_SHARE * len(busy))
    if len(distinct) <= MAX_EXACT_GROUPS and frequent.all():
        return classes
    return _powers_of_two(classes)


def _powers_of_two(values: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(values > 0, np.ceil(np.log2(values)), np.nan)


def _time_classes(times: Floats) -> tuple[Floats, Floats]:
    """Equal stretches of time; of lines where there are no stamps."""
    known = bool(len(times)) and bool(np.isfinite(times).all()) and float(times.max()) > float(times.min())
    clock = times - times.min() if known else np.arange(len(times), dtype=float)
    span = float(clock.max()) if len(clock) else 0.0
    if span <= 0 or len(clock) < 2:
        return clock, np.zeros(len(clock))
    num_cuts = min(NUM_TIME_CUTS, len(clock))
    return clock, np.minimum(np.floor(clock / span * num_cuts), num_cuts - 1.0)


def mean_of(values: Floats) -> float:
    """Mean of what is known; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(np.nanmean(values)) if len(values) else math.nan
