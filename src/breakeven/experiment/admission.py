"""Equal admission: arms are compared only where the same number of requests was really running.

A capped arm looks slow at high load and a queueing one looks fast per token, whatever speculation does; so inequality voids a
comparison instead of qualifying it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from breakeven.experiment.summary import RunSummary
from breakeven.experiment.trial import Trial

__all__ = ["RUNNING_TOLERANCE", "mean_running", "mean_waiting", "unequal_admission"]

# relative difference of running requests that is put down to when the scrapes fell, not to the servers
RUNNING_TOLERANCE = 0.10
# Variance of one scrape before any is seen, with the weight of one: a client between two answers is a request that does not run, so
# 7 and 7 of 8 agree by chance and do not show that there is no noise.
SCRAPE_VARIANCE = 0.5


def mean_running(trials: Sequence[Trial]) -> float | None:
    """Running requests, averaged over the scrapes at both ends of every window; None where the server shows no counters."""
    scrapes = _running(trials)
    return statistics.fmean(scrapes) if scrapes else None


def mean_waiting(trials: Sequence[Trial]) -> float | None:
    scrapes = _scrapes(trials)
    return statistics.fmean(waiting for _, waiting in scrapes) if scrapes else None


def unequal_admission(run: RunSummary, arm: str, load: str) -> str | None:
    """Why the arm and the baseline are not comparable at this load point, with the figures; None where they are."""
    baseline = run.record.baseline
    point = run.load(load)
    mine, theirs = run.trials(arm, load), run.trials(baseline, load)
    cap, baseline_cap = run.arm(arm).max_running_requests, run.arm(baseline).max_running_requests
    binding = point.concurrency is None or point.concurrency > min(cap, baseline_cap)
    if cap != baseline_cap and binding and run.arm(arm).url is None and run.arm(baseline).url is None:
        return f"{arm} may run {cap} requests at once and {baseline} {baseline_cap}; set max_running_requests to the same number"
    running, baseline_running = _running(mine), _running(theirs)
    # a server whose load is not full runs fewer requests because it is faster: only closed loops fix the number
    if point.concurrency is not None and running and baseline_running:
        difference = statistics.fmean(running) - statistics.fmean(baseline_running)
        noise = math.hypot(_standard_error(running), _standard_error(baseline_running))
        if abs(difference) > max(RUNNING_TOLERANCE * statistics.fmean(baseline_running), 3.0 * noise):
            return (
                f"{arm} ran {statistics.fmean(running):.1f} requests on average and {baseline}"
                f" {statistics.fmean(baseline_running):.1f}; find what holds requests back (memory for the KV cache, a limit of"
                " the engine) and give both the same"
            )
    return None


def _running(trials: Sequence[Trial]) -> list[int]:
    return [running for running, _ in _scrapes(trials)]


def _scrapes(trials: Sequence[Trial]) -> list[tuple[int, int]]:
    """Requests that ran and that waited, scrape by scrape.

    Where nothing runs, nothing holds a request back: one that waits then is just being let in, and counts as running. A server on a
    busy machine answers scrapes at just such moments, between two steps.
    """
    found = []
    for trial in trials:
        for scrape in trial.counters or ():
            let_in = int(scrape.num_running == 0 and scrape.num_waiting > 0)
            found.append((scrape.num_running + let_in, scrape.num_waiting - let_in))
    return found


def _standard_error(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.inf
    mean = statistics.fmean(values)
    variance = (sum((value - mean) ** 2 for value in values) + SCRAPE_VARIANCE) / len(values)
    return math.sqrt(variance / len(values))
