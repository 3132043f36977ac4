"""What servers were seen to do, in one form: readings of logs and metrics, and the arms of a run at each of their loads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from breakeven.findings import Finding
from breakeven.readers.effects import Level, level
from breakeven.readers.reading import Reading, ReadResult
from breakeven.stats.intervals import block_interval

if TYPE_CHECKING:
    from breakeven.experiment.summary import RunSummary

__all__ = ["ENOUGH_ROUNDS", "LOOKUPS", "Observation", "observations"]

# Drafters that look the text up and have no weights that could be wired wrongly.
LOOKUPS = frozenset({"ngram", "NGRAM", "suffix", "ngram_gpu"})
# Below this many rounds a rate of zero says little.
ENOUGH_ROUNDS = 100
# Accept lengths by drafts a round below which a head is broken more often than weak; 0: not known how many.
_NEAR_FLOOR = {0: 1.15, 1: 1.05, 2: 1.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One server at one load, or one log. level: accept length a round, bonus included, its standard error, rounds behind it.

    joint: P(first i drafts accepted); empty where the engine does not say. findings: what its reader noticed.
    group: observations of one server that differ in load only share it."""

    source: str
    group: str
    engine: str
    version: str | None
    level: Level
    num_drafted: int | None
    joint: tuple[float, ...] = ()
    running: float | None = None
    least: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def accept_length(self) -> float:
        return self.level.mean

    @property
    def is_enough(self) -> bool:
        """Rounds enough to judge the level by."""
        return self.level.rounds >= ENOUGH_ROUNDS

    @property
    def is_near_floor(self) -> bool:
        """Less than any trained head reaches: with three drafts even 5000 samples give 1.5. One draft alone decides little."""
        return self.level.mean < _NEAR_FLOOR.get(self.num_drafted or 0, 1.3)

    def __str__(self) -> str:
        drafts = f", {self.num_drafted} drafts a round" if self.num_drafted else ""
        rounds = f", about {self.level.rounds:.0f} rounds" if self.level.rounds else ""
        return f"{self.source}: accept length {self.level}{drafts}{rounds}"


def observations(readings: ReadResult | None, run: RunSummary | None) -> Iterator[Observation]:
    for reading in readings.readings if readings is not None else ():
        found = _of_reading(reading)
        if found is not None:
            yield found
    if run is not None:
        yield from _of_run(run)


def _of_reading(reading: Reading) -> Observation | None:
    acceptance, settings = reading.acceptance, reading.settings
    if acceptance is None or acceptance.accept_length is None or _is_forced(settings) or _is_lookup(settings):
        return None
    error = acceptance.uncertainty / 2 if acceptance.uncertainty is not None else math.inf
    name = reading.source if reading.part == 1 else f"{reading.source}, part {reading.part}"
    return Observation(
        source=name,
        group=name,
        engine=reading.engine,
        version=reading.version,
        # a gauge without counts stands for the whole of the engine's last interval
        level=Level(
            mean=acceptance.accept_length,
            error=error,
            rounds=acceptance.rounds or 0.0,
            num_lines=max(reading.num_lines, 1),
        ),
        num_drafted=acceptance.num_drafted,
        joint=acceptance.joint,
        running=reading.running,
        settings=settings,
        findings=reading.findings,
    )


def _is_forced(settings: Mapping[str, str]) -> bool:
    return settings.get("rejection_sample_method") == "synthetic"


def _is_lookup(settings: Mapping[str, str]) -> bool:
    return settings.get("speculative_algorithm", settings.get("method", "")) in LOOKUPS


def _of_run(run: RunSummary) -> Iterator[Observation]:
    from breakeven.experiment.scheduled_acceptance import off_schedule

    for arm in run.record.arms:
        if arm.speculation is None or arm.forced or arm.speculation.method in LOOKUPS:
            continue
        for load in run.record.loads:
            windows = [counts for trial in run.trials(arm.name, load.label) if (counts := run.acceptance(trial)) is not None]
            windows = [counts for counts in windows if counts.num_rounds]
            if not windows:
                continue
            together = sum(windows[1:], start=windows[0])
            drafts = arm.speculation.num_steps or arm.speculation.num_draft_tokens
            group = arm.name
            if arm.speculation.schedule:
                # what loads with other numbers of drafts accept is not to be compared, nor what mixtures do
                drafts = arm.speculation.drafts_at(load.concurrency or arm.max_running_requests)
                if not drafts or off_schedule(together, arm, load):
                    continue
                group = f"{arm.name}, {drafts} drafts"
            lengths = [counts.per_round_length for counts in windows]
            counted = level(np.array(lengths), np.array([float(counts.num_rounds) for counts in windows]), drafts)
            version = run.record.facts.get(arm.name, {}).get("version")
            yield Observation(
                source=f"{arm.name} at {load.label}",
                group=group,
                engine=arm.engine,
                version=str(version) if version is not None else arm.engine_version,
                level=replace(counted, error=max(counted.error, _error_over_launches(run, arm.name, load.label))),
                num_drafted=drafts,
                joint=together.joint,
                running=float(load.concurrency) if load.concurrency is not None else None,
                least=min(lengths),
            )


def _error_over_launches(run: RunSummary, arm: str, load: str) -> float:
    """Half of the half width that the run's verdict gives the accept length, so that the two do not contradict each other: rounds
    of one answer are alike, and a few windows hold a few answers. 0 where there is one launch."""
    launches = [sum(counts[1:], start=counts[0]) for counts in run.acceptance_by_launch(arm, load)]
    if len(launches) < 2:
        return 0.0
    estimate = block_interval([[counts.per_round_length] for counts in launches if counts.num_rounds], assumed_sd=0.0)
    return (estimate.high - estimate.low) / 4 if estimate.usable else 0.0
