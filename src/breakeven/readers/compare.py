"""Two logs side by side: accept length and throughput at equal running batches, and what was launched differently."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from breakeven.findings import Finding
from breakeven.readers.effects import Level, judge
from breakeven.readers.figures import known
from breakeven.readers.findings.changes import collapse
from breakeven.readers.reading import Comparison, Difference
from breakeven.readers.series import Mask
from breakeven.readers.speedup import SHARE_CALLED_FLATTERED
from breakeven.readers.study import Study, mean_of
from breakeven.stats.intervals import ASSUMED_LAUNCH_SD, block_interval

__all__ = ["compare", "sequence_findings"]

# A batch on fewer lines than this is not compared on its own.
MIN_LINES = 1
MAX_BATCHES = 12
# What changes the time of a plain step, or how much prefill stands between steps.
_OF_A_STEP = (
    "tp_size",
    "dp_size",
    "tensor_parallel_size",
    "quantization",
    "kv_cache_dtype",
    "attention_backend",
    "disable_cuda_graph",
    "enforce_eager",
    "disable_radix_cache",
    "enable_prefix_caching",
    "enable_hierarchical_cache",
)
_OPEN = frozenset({"None", "auto", ""})
# Settings that name files or places, not behaviour.
_NO_SETTING = frozenset({"model_path", "decode_log_interval"})


def compare(first: tuple[str, Study], second: tuple[str, Study]) -> Comparison:
    """`second` against `first`, the baseline."""
    (first_name, one), (second_name, other) = first, second
    settings = tuple(
        f"{key}: {one.section.settings.get(key, 'not said')} / {other.section.settings.get(key, 'not said')}"
        for key in sorted(one.section.settings.keys() | other.section.settings.keys())
        if key not in _NO_SETTING and one.section.settings.get(key) != other.section.settings.get(key)
    )
    differences = [difference for batch in (None, *_batches(one, other)) if (difference := _difference(one, other, batch))]
    is_on_off = bool(one.overall.num_lines) != bool(other.overall.num_lines)
    # where both draft, a setting is what is being tried out; beside plain serving it is not
    unlike = tuple(_unlike(one, other)) if is_on_off else ()
    if unlike:
        # a ratio of speeds would compare two machines, or two ways of serving one
        differences = [
            one_batch.model_copy(update={"speedup": None, "speedup_low": None, "speedup_high": None}) for one_batch in differences
        ]
    return Comparison(
        first=first_name,
        second=second_name,
        settings=settings,
        differences=tuple(differences),
        findings=(*_findings(first, second, differences, settings), *_speeds_not_compared(one, other, unlike, is_on_off=is_on_off)),
    )


def _unlike(one: Study, other: Study) -> Iterator[str]:
    """Launch settings that both logs state, that differ, and that change what a plain step takes."""
    for key in _OF_A_STEP:
        mine, theirs = (study.section.settings.get(key, "") for study in (one, other))
        if mine not in _OPEN and theirs not in _OPEN and mine != theirs:
            yield f"{key} {mine} against {theirs}"
    models = [study.section.settings.get("model_path", "").rstrip("/").rpartition("/")[2] for study in (one, other)]
    if all(models) and models[0] != models[1]:
        yield f"model {models[0]} against {models[1]}"


def _speeds_not_compared(one: Study, other: Study, unlike: Sequence[str], *, is_on_off: bool) -> Iterator[Finding]:
    if unlike:
        yield Finding(
            code="launches-not-alike",
            severity="warning",
            confidence="high",
            title="The two were launched with other settings beside speculation, so their speeds are not compared.",
            evidence=tuple(unlike),
            remedy="Serve both with the same settings but for speculation: a plain step has to take the same time in both.",
        )
        return
    batches = [_seen(study) for study in (one, other)]
    if is_on_off and all(batches) and not batches[0] & batches[1]:
        ranges = [f"{min(seen):.0f} to {max(seen):.0f}" if len(seen) > 1 else f"{min(seen):.0f}" for seen in batches]
        yield Finding(
            code="no-batch-in-common",
            severity="info",
            confidence="high",
            title=f"No running batch is in both logs ({ranges[0]} against {ranges[1]}), so their speeds are not compared.",
            evidence=("the cost of a round changes with the batch",),
            remedy="Load both servers with the same number of requests at once.",
        )


def _batches(one: Study, other: Study) -> Sequence[float]:
    common = _seen(one) & _seen(other)
    return sorted(common)[:MAX_BATCHES]


def _seen(one: Study) -> set[float]:
    running = one.columns["running"]
    values, counts = np.unique(running[np.isfinite(running) & (running > 0)], return_counts=True)
    return {float(value) for value, count in zip(values, counts, strict=True) if count >= MIN_LINES}


def _at(one: Study, batch: float | None) -> Mask:
    return np.ones(len(one.lengths), dtype=bool) if batch is None else one.columns["running"] == batch


def _difference(one: Study, other: Study, batch: float | None) -> Difference | None:
    levels = [study.level_of(_at(study, batch)) for study in (one, other)]
    speeds = [study.columns["throughput"][_at(study, batch) & study.steady] for study in (one, other)]
    both_draft = all(level.num_lines for level in levels)
    means = [mean_of(speed) for speed in speeds]
    speedup = low = high = math.nan
    # over all lines batches differ between the two, so a ratio of speeds would compare loads
    if batch is not None and all(math.isfinite(mean) and mean > 0 for mean in means):
        logs = [math.log(means[1] / means[0])]
        estimate = block_interval([logs], assumed_sd=ASSUMED_LAUNCH_SD * math.sqrt(2))
        speedup, low, high = (math.exp(value) for value in (estimate.value, estimate.low, estimate.high))
    if not both_draft and not math.isfinite(speedup):
        return None
    return Difference(
        running=batch,
        accept_lengths=(levels[0].mean, levels[1].mean) if both_draft else None,
        judgement=judge(levels[0], levels[1]) if both_draft else None,
        throughputs=(means[0], means[1]) if all(math.isfinite(mean) for mean in means) else None,
        speedup=known(speedup),
        speedup_low=known(low),
        speedup_high=known(high),
    )


def _findings(
    first: tuple[str, Study], second: tuple[str, Study], differences: Sequence[Difference], settings: Sequence[str]
) -> Iterator[Finding]:
    at_batches = [d for d in differences if d.running is not None and d.judgement] or [d for d in differences if d.judgement]
    effects = [d for d in at_batches if d.judgement == "effect"]
    if effects:
        yield _accept_lengths_differ(first, second, effects, at_batches, settings)
    elif at_batches:
        undecided = [d for d in at_batches if d.judgement == "undecided"]
        yield Finding(
            code="accept-lengths-undecided" if undecided else "accept-lengths-alike",
            severity="info",
            confidence="low" if undecided else "high",
            title=f"Accept lengths differ by {_largest(undecided):+.2f}, which these lines do not tell from chance."
            if undecided
            else f"Accept lengths are alike: the largest difference, {_largest(at_batches):+.2f}, is noise.",
            evidence=tuple(_shown(d) for d in at_batches[:6]),
            remedy="Read longer logs." if undecided else "",
        )
    one, other = first[1], second[1]
    if bool(one.overall.num_lines) != bool(other.overall.num_lines):
        yield from _on_off(first, second, differences)


def _accept_lengths_differ(
    first: tuple[str, Study],
    second: tuple[str, Study],
    effects: Sequence[Difference],
    at_batches: Sequence[Difference],
    settings: Sequence[str],
) -> Finding:
    gaps = [d.accept_lengths[1] - d.accept_lengths[0] for d in effects if d.accept_lengths]
    lower = first[0] if sum(gaps) > 0 else second[0]
    signed = [d.accept_lengths[1] - d.accept_lengths[0] for d in at_batches if d.accept_lengths]
    everywhere = len(at_batches) > 1 and all(d.judgement != "noise" for d in at_batches) and len({gap > 0 for gap in signed}) == 1
    backends = [text for text in settings if "attention_backend" in text]
    grows = len(signed) > 1 and abs(signed[-1]) > abs(signed[0])
    where = f"already at batch {at_batches[0].running:.0f}" if everywhere and at_batches[0].running is not None else ""
    return Finding(
        code="accept-lengths-differ",
        severity="warning",
        confidence="high" if everywhere and len(effects) == len(at_batches) else "medium",
        title=f"Accept length is lower in {lower}"
        + (f", {where}" if where else "")
        + (" and the gap grows with the batch." if grows and everywhere else "."),
        evidence=(*(_shown(d) for d in at_batches[:6]), *(f"launched differently: {text}" for text in settings[:6])),
        remedy=(
            f"The two differ in the attention backend: {lower} has the fault (draft or verify path). Take the other "
            f"backend or upgrade."
            if backends
            else f"If prompts and sampling were the same, what was launched differently is the fault in {lower}: "
            f"change one setting at "
            "a time. If they were not, the traffic may explain it."
        ),
    )


def _largest(differences: Sequence[Difference]) -> float:
    gaps = [d.accept_lengths[1] - d.accept_lengths[0] for d in differences if d.accept_lengths]
    return max(gaps, key=abs, default=0.0)


def _shown(difference: Difference) -> str:
    where = "all lines" if difference.running is None else f"batch {difference.running:.0f}"
    assert difference.accept_lengths is not None
    then, now = difference.accept_lengths
    return f"{where}: {then:.2f} and {now:.2f} ({now - then:+.2f}, {difference.judgement})"


def _on_off(first: tuple[str, Study], second: tuple[str, Study], differences: Sequence[Difference]) -> Iterator[Finding]:
    """One of the two has no drafts: speed at equal batch, and the cost ratio that it implies."""
    speculative = first if first[1].overall.num_lines else second
    inverted, study = speculative is first, speculative[1]
    lines = []
    for difference in differences:
        if difference.speedup is None or difference.running is None:
            continue
        speedup = 1 / difference.speedup if inverted else difference.speedup
        level: Level = speculative[1].level_of(_at(speculative[1], difference.running))
        cost = f", so a round costs {level.mean / speedup:.2f} plain steps" if level.num_lines and not _is_flattered(study) else ""
        lines.append(f"batch {difference.running:.0f}: speculation {speedup:.2f}x at accept length {level.mean:.2f}{cost}")
    if lines:
        yield Finding(
            code="speculation-on-against-off",
            severity="info",
            confidence="low",
            title="One log has drafts and the other none: speed at equal running batch compares them.",
            evidence=tuple(lines[:8]),
            remedy="One launch each: launches of the same thing differ by 10 to 30 %. For a verdict run breakeven bench.",
        )


def _is_flattered(one: Study) -> bool:
    """Its lengths are those of steps with drafts alone, many others having had none."""
    rounds, steps = one.columns["rounds"], one.columns["steps"]
    known_steps = (rounds > 0) & (steps > 0)
    return bool(known_steps.any()) and float(rounds[known_steps].sum()) < SHARE_CALLED_FLATTERED * float(steps[known_steps].sum())


def sequence_findings(studies: Sequence[tuple[str, Study]]) -> Iterator[Finding]:
    """Three logs or more in their order: one that collapses between two that do not."""
    levels = [study.overall for _, study in studies]
    if len(levels) < 3 or not all(level.num_lines for level in levels):
        return
    place = collapse(levels)
    if place is None or place + 1 >= len(levels):
        return
    yield Finding(
        code="accept-length-collapses",
        severity="error",
        confidence="medium",
        title=f"Accept length collapses in {studies[place][0]} and is back in {studies[place + 1][0]}.",
        evidence=tuple(f"{name}: {study.overall}" for name, study in studies),
        remedy="If the cache was reused in the one and flushed before the other, cached prefixes lack the drafter's "
        "keys and values: "
        "serve with the host cache off (HiCache, KV offload) or upgrade. Training does not help.",
    )
