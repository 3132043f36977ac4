"""One trial of an engine that does not exist: what its declared truth and noise would have shown, in well under a millisecond.

Noise is what real servers show: a speed of its own for every launch, drift within a launch (AR(1) over its trials), and now and
then a trial that is slow altogether. The fake batch is steady: every running request decodes at the same pace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Counters
from breakeven.engines.fake.truth import Truth, by_batch, truth_of
from breakeven.loadgen.samples import ClientHealth, LoadPoint, LoadResult, RequestSample

__all__ = ["simulate_trial"]

# how many times a request reports its tokens after the first: enough for rates, few enough to be quick
_REPORTS_PER_REQUEST = 4
_NOTHING = Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """How the steady batch moves: seconds for a prefill, for a step of the whole batch and for one token of one request."""

    running: float
    prefill_s: float
    step_s: float
    token_s: float

    def request_s(self, tokens: float) -> float:
        return self.prefill_s + (tokens - 1) * self.token_s


def simulate_trial(
    arm: Arm, load: LoadPoint, *, window_s: float, launch_seed: int, trial_seed: int, trial_index: int = 0
) -> tuple[LoadResult, tuple[Counters, Counters]]:
    """What the load client and the two scrapes of one window would have seen.

    `launch_seed` fixes the speed of a launch and how it drifts, `trial_seed` everything else. `trial_index` counts the trials of a
    launch in their order, because drift runs through them.

    Raises:
        PlanError: the arm's simulation is impossible.
    """
    truth = truth_of(arm)
    rng = np.random.default_rng(trial_seed)
    slowness = _slowness(truth, launch_seed, trial_index, rng)
    cap = min(arm.max_running_requests, truth.admits or arm.max_running_requests)
    joint = _joint(arm, truth)

    def drafted(running: float) -> tuple[float, ...]:
        # a schedule looks at the batch; what it costs is declared by batch too (cost_ratio)
        return joint if arm.speculation is None else joint[: arm.speculation.drafts_at(round(running))]

    def expected_length(running: float) -> float:
        return 1.0 + truth.drafted_share * sum(drafted(running))

    pace = _steady_pace(truth, load, cap, expected_length, slowness)
    joint = drafted(pace.running)
    decoding = 1.0 - pace.prefill_s / pace.request_s(load.max_tokens)
    num_steps = max(1, round(pace.running * decoding * window_s / pace.step_s))
    acceptance = _draw_acceptance(arm, truth, joint, num_steps, rng)
    if acceptance is not None:
        token_s = pace.step_s / acceptance.accept_length
        pace = _Pace(running=pace.running, prefill_s=pace.prefill_s, step_s=pace.step_s, token_s=token_s)

    admissions = _closed_loop if load.rate_per_s is None else _open_loop
    admitted = list(admissions(load, pace, cap, window_s, rng))
    samples = [
        _sample(truth, load, pace, index, wait_s, start_s, window_s, rng) for index, (wait_s, start_s) in enumerate(admitted)
    ]
    tokens = sum(_tokens_at(sample, window_s) - _tokens_at(sample, 0.0) for sample in samples)
    finished = sum(1 for sample in samples if sample.finish_reason is not None)
    if load.concurrency is not None:
        num_waiting = max(0, load.concurrency - cap)
    else:
        num_waiting = sum(start_s > window_s for _, start_s in admitted)
    before = Counters(
        time_s=0.0,
        prompt_tokens=0,
        generation_tokens=0,
        num_running=round(pace.running),
        num_waiting=num_waiting,
        num_requests=0,
        acceptance=None if acceptance is None else _NOTHING,
    )
    after = Counters(
        time_s=window_s,
        prompt_tokens=finished * truth.prompt_tokens,
        generation_tokens=tokens + round(truth.foreign_tokens_per_s * window_s),
        num_running=round(pace.running),
        num_waiting=num_waiting,
        num_preemptions=round(truth.preemptions_per_request * finished),
        num_requests=finished,
        acceptance=acceptance,
    )
    health = ClientHealth(loop_lag_p99_s=truth.client_lag_s, dispatch_delay_p99_s=truth.client_lag_s, cpu_share=0.05)
    return LoadResult(window_s=window_s, samples=samples, health=health), (before, after)


def _slowness(truth: Truth, launch_seed: int, trial_index: int, rng: np.random.Generator) -> float:
    """What every time of the trial is multiplied by; its log has the s.d. that the truth declares."""
    launch_rng = np.random.default_rng(launch_seed)
    launch, *shocks = launch_rng.standard_normal(trial_index + 2)
    drift = shocks[0]
    for shock in shocks[1:]:
        drift = truth.drift_correlation * drift + math.sqrt(1.0 - truth.drift_correlation**2) * shock
    slow = truth.outlier_slowdown if rng.random() < truth.outlier_probability else 1.0
    return slow * math.exp(truth.launch_sd * launch + truth.drift_sd * drift)


def _joint(arm: Arm, truth: Truth) -> tuple[float, ...]:
    """Joint acceptance; a forced mean is reached with the least variance, as engines do: whole drafts, then one at odds."""
    if not arm.forced or arm.speculation is None or arm.speculation.forced_accept_length is None:
        return truth.joint
    accepted = arm.speculation.forced_accept_length - 1.0
    return tuple(min(1.0, max(0.0, accepted - position)) for position in range(arm.speculation.num_draft_tokens))


def _steady_pace(truth: Truth, load: LoadPoint, cap: int, accept_length: Callable[[float], float], slowness: float) -> _Pace:
    """In closed loop the batch is given; in open loop it is the one whose requests leave as fast as they come (Little's law)."""

    def pace(running: float) -> _Pace:
        step_s = by_batch(truth.step_s, running) * by_batch(truth.cost_ratio, running) * slowness
        return _Pace(running=running, prefill_s=truth.prefill_s * slowness, step_s=step_s, token_s=step_s / accept_length(running))

    if load.rate_per_s is None:
        return pace(float(min(load.concurrency or 1, cap)))
    running = 1.0
    for _ in range(50):
        running = min(float(cap), max(1.0, 0.5 * running + 0.5 * load.rate_per_s * pace(running).request_s(load.max_tokens)))
    return pace(running)


def _draw_acceptance(
    arm: Arm, truth: Truth, joint: tuple[float, ...], num_steps: int, rng: np.random.Generator
) -> Acceptance | None:
    if arm.speculation is None:
        return None
    num_rounds = round(num_steps * truth.drafted_share) if joint else 0
    still_accepted, before, per_position = num_rounds, 1.0, []
    for probability in joint:
        still_accepted = int(rng.binomial(still_accepted, probability / before)) if before else 0
        before = probability
        per_position.append(still_accepted)
    return Acceptance(
        num_steps=num_steps,
        num_rounds=num_rounds,
        num_drafted=num_rounds * len(joint),
        num_accepted=sum(per_position),
        accepted_per_position=tuple(per_position),
    )


def _closed_loop(
    load: LoadPoint, pace: _Pace, cap: int, window_s: float, rng: np.random.Generator
) -> Iterator[tuple[float, float]]:
    """(seconds waited for a slot, when the slot was got) of every request, slot by slot: one ends, the next begins."""
    request_s = pace.request_s(load.max_tokens)
    waiting = max(0, (load.concurrency or 1) - cap)
    for _ in range(round(pace.running)):
        start_s = -request_s * float(rng.random())
        while start_s < window_s:
            yield request_s * waiting / cap, start_s
            start_s += request_s


def _open_loop(load: LoadPoint, pace: _Pace, cap: int, window_s: float, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """The same for Poisson arrivals: beyond capacity each request waits for the ones before it."""
    assert load.rate_per_s is not None
    request_s = pace.request_s(load.max_tokens)
    slot_free_s = [-math.inf] * cap
    arrival_s = -2.0 * request_s
    while (arrival_s := arrival_s + float(rng.exponential(1.0 / load.rate_per_s))) < window_s:
        slot = min(range(cap), key=slot_free_s.__getitem__)
        start_s = max(arrival_s, slot_free_s[slot])
        slot_free_s[slot] = start_s + request_s
        if slot_free_s[slot] > 0.0:
            yield start_s - arrival_s, start_s


def _sample(
    truth: Truth, load: LoadPoint, pace: _Pace, index: int, wait_s: float, start_s: float, window_s: float, rng: np.random.Generator
) -> RequestSample:
    """One request that was admitted at `start_s`, seen until the window ends. The last token before either edge is reported."""
    first_s = start_s + pace.prefill_s
    end_s = start_s + pace.request_s(load.max_tokens)
    reports = [first_s + (end_s - first_s) * part / _REPORTS_PER_REQUEST for part in range(1, _REPORTS_PER_REQUEST + 1)]
    steps = {math.floor((time_s - first_s) / pace.token_s + 1e-9) for time_s in (*reports, 0.0, min(end_s, window_s))}
    arrivals = [(first_s, 1)] if first_s <= window_s else []
    arrivals += [
        (time_s, 1 + step)
        for step in sorted(steps)
        if 0 < step < load.max_tokens and (time_s := first_s + step * pace.token_s) <= window_s + 1e-9
    ]
    failed = truth.error_probability > 0 and rng.random() < truth.error_probability
    degenerate = truth.degenerate_probability > 0 and rng.random() < truth.degenerate_probability
    return RequestSample(
        index=index,
        prompt_id=f"prompt-{index}",
        kind="chat",
        scheduled_s=start_s - wait_s,
        start_s=start_s - wait_s,
        first_token_s=first_s if first_s <= window_s else None,
        end_s=min(end_s, window_s),
        prompt_tokens=truth.prompt_tokens,
        output_tokens=arrivals[-1][1] if arrivals else 0,
        finish_reason="length" if end_s <= window_s and not failed else None,
        arrivals=tuple(arrivals),
        degenerate="the same four words over and over" if degenerate else None,
        error="HTTP 500 Internal Server Error" if failed else None,
    )


def _tokens_at(sample: RequestSample, time_s: float) -> int:
    return next((tokens for arrival_s, tokens in reversed(sample.arrivals) if arrival_s <= time_s), 0)
