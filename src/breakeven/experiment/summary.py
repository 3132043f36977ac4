"""Trials to figures: what each counts for, arranged by arm, load point and block, and paired with the baseline's."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm
from breakeven.engines.request_acceptance import requests_acceptance
from breakeven.experiment.objective import Objective
from breakeven.experiment.record import RunRecord
from breakeven.experiment.scheduled_acceptance import as_scheduled
from breakeven.experiment.trial import Trial
from breakeven.loadgen.measures import decode_time_per_token, goodput, throughput
from breakeven.loadgen.samples import LoadPoint

__all__ = [
    "LogGoodput",
    "Measure",
    "RunSummary",
    "log_decode_speed",
    "log_decode_time_per_token",
    "log_request_speed",
    "log_throughput",
    "speed_measure",
    "trial_acceptance",
]

Measure = Callable[[Trial], float]


def log_throughput(trial: Trial) -> float:
    """Log of output tokens per second; -inf where no token arrived."""
    return _log(throughput(trial))


def log_request_speed(trial: Trial) -> float:
    """Log of output tokens per second of whole requests, queueing and prefill included; NaN where none was completed.

    Tokens of the answers completed in the window, over the time since each was due.
    """
    whole = [
        sample
        for sample in trial.samples
        if sample.error is None
        and sample.finish_reason is not None
        and not sample.staggered
        and 0.0 < sample.end_s <= trial.window_s
    ]
    seconds = math.fsum(sample.end_s - sample.scheduled_s for sample in whole)
    return _log(sum(sample.output_tokens for sample in whole) / seconds) if seconds > 0 else math.nan


@dataclass(frozen=True, slots=True)
class LogGoodput:
    """Log of output tokens per second within the objective's limits; -inf where no request kept them."""

    objective: Objective

    def __call__(self, trial: Trial) -> float:
        return _log(goodput(trial, self.objective.ttft_s, self.objective.tpot_s))


def log_decode_speed(trial: Trial) -> float:
    """Log of output tokens per second of one request while it decodes; NaN where nothing decoded."""
    return -log_decode_time_per_token(trial)


def speed_measure(load: LoadPoint, objective: Objective | None = None) -> Measure:
    """What arms are compared by; without an objective, by throughput.

    Clients in closed loop wait for answers, so throughput shows speed. Arrivals at a given rate set the throughput themselves;
    there, speed shows in how long requests take.
    """
    if objective is not None and objective.name == "goodput":
        return LogGoodput(objective)
    if objective is not None and objective.name == "request-speed":
        return log_decode_speed
    return log_throughput if load.rate_per_s is None else log_request_speed


def log_decode_time_per_token(trial: Trial) -> float:
    """Log of the seconds a request needs for an output token while it decodes; NaN where nothing decoded."""
    return _log(decode_time_per_token(trial))


def trial_acceptance(trial: Trial) -> Acceptance | None:
    """Counts of the window, from the best source there is; None where there is none, or the engine restarted in between.

    A server's counters of the window come first. Where it counts requests only when they end, what it reported with each answer
    is better: it says how many drafts were accepted, and counters do not. Averages of logs and gauges come last.
    """
    counted = _counted(trial)
    at_finish = trial.counters is not None and trial.counters[1].at_finish
    if counted is not None and counted.source == "counters" and not at_finish:
        return counted
    reports = [(sample.speculation, sample.output_tokens) for sample in trial.samples if sample.speculation is not None]
    return requests_acceptance(reports) or counted


def _counted(trial: Trial) -> Acceptance | None:
    if trial.counters is None:
        return None
    before, after = (scrape.acceptance for scrape in trial.counters)
    if after is None:
        return None
    try:
        return after if before is None else after.since(before)
    except ValueError:
        return None


class RunSummary:
    """The trials of a run that count, by arm and load point. Figures of a trial are worked out once and kept."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._arms = {arm.name: arm for arm in record.arms}
        self._loads = {load.label: load for load in record.loads}
        self._all: dict[tuple[str, str], list[Trial]] = defaultdict(list)
        self._counted: dict[tuple[str, str], list[Trial]] = defaultdict(list)
        self._launches: dict[str, set[str]] = defaultdict(set)
        self._figures: dict[tuple[Measure, int], float] = {}
        for trial in sorted(record.trials, key=lambda trial: (trial.block, trial.started_at_unix_s, trial.order, trial.repeat)):
            place = trial.arm, trial.load.label
            self._launches[trial.arm].add(trial.launch)
            self._all[place].append(trial)
            if not trial.voids:
                self._counted[place].append(trial)

    def arm(self, name: str) -> Arm:
        return self._arms[name]

    def load(self, label: str) -> LoadPoint:
        return self._loads[label]

    def trials(self, arm: str, load: str) -> Sequence[Trial]:
        """Those that count, in the order they were run."""
        return self._counted.get((arm, load), ())

    def num_tried(self, arm: str, load: str) -> int:
        """Trials of any outcome."""
        return len(self._all.get((arm, load), ()))

    def num_voided(self, arm: str, load: str) -> int:
        return len(self._all.get((arm, load), ())) - len(self.trials(arm, load))

    def num_launches(self, arm: str, load: str | None = None) -> int:
        """Launches that were measured at all (what a budget counts), or those with a trial that counts at `load`."""
        if load is None:
            return len(self._launches.get(arm, ()))
        return len({trial.launch for trial in self.trials(arm, load)})

    def figure(self, measure: Measure, trial: Trial) -> float:
        key = measure, id(trial)
        if key not in self._figures:
            self._figures[key] = measure(trial)
        return self._figures[key]

    def by_launch(self, arm: str, load: str, measure: Measure) -> list[list[float]]:
        """The figures of each launch's trials, in the order of launches."""
        launches: dict[str, list[float]] = {}
        for trial in self.trials(arm, load):
            launches.setdefault(trial.launch, []).append(self.figure(measure, trial))
        return list(launches.values())

    def acceptance(self, trial: Trial) -> Acceptance | None:
        """`trial_acceptance`, and of an arm with a schedule what its counts really say."""
        counts = trial_acceptance(trial)
        return None if counts is None else as_scheduled(counts, self._arms[trial.arm], trial.load)

    def acceptance_by_launch(self, arm: str, load: str) -> list[list[Acceptance]]:
        """The windows' counts of each launch; launches without counters are left out."""
        launches: dict[str, list[Acceptance]] = {}
        for trial in self.trials(arm, load):
            counts = self.acceptance(trial)
            if counts is not None and counts.num_steps:
                launches.setdefault(trial.launch, []).append(counts)
        return list(launches.values())

    def acceptance_of_block(self, arm: str, load: str, block: int) -> Acceptance | None:
        """Counts of all its windows in one block, together."""
        counts = [
            acceptance
            for trial in self.trials(arm, load)
            if trial.block == block and (acceptance := self.acceptance(trial)) is not None and acceptance.num_steps
        ]
        return sum(counts[1:], start=counts[0]) if counts else None

    def paired(self, arm: str, baseline: str, load: str, measure: Measure) -> dict[int, list[float]]:
        """Differences of `measure` (a logarithm), arm minus baseline, of each block in which both have trials that count.

        Repeats pair up: they ran side by side, or at the same age of their servers. Where a block has no such pair left because
        trials were voided, it has one difference, that of the medians. Blocks that share a launch count as one (the first): a
        server that was only attached to is the same launch in every block, and its windows say nothing about other launches.
        """
        differences: dict[int, list[float]] = {}
        first = self._first_sharing_launch(arm, baseline, load)
        mine, theirs = self._by_block(arm, load, measure), self._by_block(baseline, load, measure)
        for block in sorted(mine.keys() & theirs.keys()):
            repeats = sorted(mine[block].keys() & theirs[block].keys())
            if repeats:
                found = [mine[block][repeat] - theirs[block][repeat] for repeat in repeats]
            else:
                found = [statistics.median(mine[block].values()) - statistics.median(theirs[block].values())]
            differences.setdefault(first[block], []).extend(found)
        return differences

    def _first_sharing_launch(self, arm: str, baseline: str, load: str) -> dict[int, int]:
        """For every block the first one with a launch of either arm in common."""
        first: dict[int, int] = {}
        of_launch: dict[str, int] = {}
        for trial in sorted((*self.trials(arm, load), *self.trials(baseline, load)), key=lambda trial: trial.block):
            first[trial.block] = min(first.get(trial.block, trial.block), of_launch.setdefault(trial.launch, trial.block))
        return first

    def _by_block(self, arm: str, load: str, measure: Measure) -> Mapping[int, dict[tuple[int, int], float]]:
        """Figures by block, then by (which launch of the arm in that block, repeat)."""
        blocks: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
        launches: dict[int, list[str]] = defaultdict(list)
        for trial in self.trials(arm, load):
            seen = launches[trial.block]
            if trial.launch not in seen:
                seen.append(trial.launch)
            blocks[trial.block][seen.index(trial.launch), trial.repeat] = self.figure(measure, trial)
        return blocks


def _log(value: float) -> float:
    if value > 0:
        return math.log(value)
    return -math.inf if value == 0 else math.nan
