"""The tables of a measured result: arms, load points, one cell for each pair of them, each arm at its own best, voided trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from breakeven.experiment.admission import mean_running
from breakeven.experiment.summary import log_decode_time_per_token, log_throughput
from breakeven.loadgen.measures import ttfts
from breakeven.stats.intervals import ASSUMED_LAUNCH_SD, Estimate, block_interval
from breakeven.verdict.measured.accept_length import acceptance_summary
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import in_words, interval_of_log
from breakeven.verdict.result import ArmInfo, BestOfArm, Cell, Interval, Load, VoidedTrial

__all__ = ["arm_infos", "cells", "loads", "own_best", "voided_trials"]


def arm_infos(case: Case) -> tuple[ArmInfo, ...]:
    record = case.record
    infos = []
    for arm in record.arms:
        speculation = arm.speculation
        notes = record.failures.get(arm.name, "")
        if arm.forced and not notes:
            notes = "accepts to order: measures what a round costs, its text is junk"
        if arm.idle and not notes:
            notes = "speculation loaded, no drafts: measures what carrying it costs"
        if speculation is not None and speculation.schedule and not notes:
            notes = f"drafts by running requests: {in_words(speculation.schedule)}"
        infos.append(
            ArmInfo(
                name=arm.name,
                engine=arm.engine,
                version=_version(case, arm.name),
                method="plain" if speculation is None else speculation.method,
                num_draft_tokens=None if speculation is None else speculation.num_draft_tokens,
                forced_accept_length=None if speculation is None else speculation.forced_accept_length,
                schedule=() if speculation is None else speculation.schedule,
                drafter=None if speculation is None or speculation.drafter is None else str(speculation.drafter),
                max_running_requests=arm.max_running_requests if arm.url is None else None,
                is_baseline=arm.name == record.baseline,
                notes=notes,
            )
        )
    return tuple(infos)


def _version(case: Case, arm: str) -> str | None:
    """The engine's release; where its kernels are not its own, that stands wherever the release does."""
    told = case.record.facts.get(arm, {}).get("version")
    version = None if told is None else str(told)
    if arm not in case.replaced_kernels:
        return version
    return f"{version or 'release unknown'} with replaced kernels"


def loads(case: Case) -> tuple[Load, ...]:
    return tuple(Load(label=load.label, concurrency=load.concurrency, rate_per_s=load.rate_per_s) for load in case.record.loads)


def cells(case: Case) -> tuple[Cell, ...]:
    """One for each arm and load point that was tried, voided trials included in the count."""
    return tuple(
        _cell(case, arm.name, load)
        for load in case.loads
        for arm in case.record.arms
        if case.run.trials(arm.name, load) or case.run.num_voided(arm.name, load)
    )


def _cell(case: Case, arm: str, load: str) -> Cell:
    run = case.run
    trials = run.trials(arm, load)
    first_tokens = [time_s for trial in trials for time_s in ttfts(trial)]
    speed = _by_launch(run.by_launch(arm, load, log_decode_time_per_token), sign=-1.0)
    length = case.lengths.get((arm, load))
    token_s = 1.0 / speed.estimate if speed else None
    steps_per_token = 1.0 if length is None else length.value
    return Cell(
        arm=arm,
        load=load,
        num_launches=run.num_launches(arm, load),
        num_trials=len(trials),
        num_voided=run.num_voided(arm, load),
        throughput=_by_launch(run.by_launch(arm, load, log_throughput)),
        request_speed=speed,
        ttft_p50_s=float(np.quantile(first_tokens, 0.5)) if first_tokens else None,
        ttft_p95_s=float(np.quantile(first_tokens, 0.95)) if first_tokens else None,
        tpot_s=token_s,
        round_s=token_s * steps_per_token if token_s and (length or run.arm(arm).speculation is None) else None,
        num_running=mean_running(trials),
        acceptance=None if length is None else acceptance_summary(length),
    )


def _by_launch(logs: Sequence[Sequence[float]], sign: float = 1.0) -> Interval | None:
    estimate: Estimate = block_interval([[sign * log for log in launch] for launch in logs], assumed_sd=ASSUMED_LAUNCH_SD)
    return interval_of_log(estimate) if math.isfinite(estimate.value) else None


def own_best(case: Case, table: Sequence[Cell]) -> tuple[BestOfArm, ...]:
    """Each arm that could be run at the closed-loop load point where it gave most tokens a second, fastest first."""
    best = []
    order = [load.label for load in case.record.loads if load.concurrency is not None]
    for arm in case.record.arms:
        mine = [cell for cell in table if cell.arm == arm.name and cell.load in order and cell.throughput is not None]
        if arm.probe or not mine:
            continue
        peak = max(mine, key=lambda cell: cell.throughput.estimate if cell.throughput else 0.0)
        assert peak.throughput is not None
        last = max(mine, key=lambda cell: order.index(cell.load))
        note = "at the highest load measured, so its capacity may lie beyond" if len(order) > 1 and peak is last else ""
        best.append(BestOfArm(arm=arm.name, load=peak.load, throughput=peak.throughput, num_running=peak.num_running, note=note))
    best.sort(key=lambda item: -item.throughput.estimate)
    if len({item.load for item in best}) > 1:
        hides = "peaks lie at different load points: this compares capacities, not the same number of running requests"
        best = [item.model_copy(update={"note": "; ".join(filter(None, (item.note, hides)))}) for item in best]
    return tuple(best)


def voided_trials(case: Case) -> tuple[VoidedTrial, ...]:
    return tuple(
        VoidedTrial(
            arm=trial.arm,
            load=trial.load.label,
            launch=trial.launch,
            reasons=tuple(f"{void.code}: {void.detail}" for void in trial.voids),
        )
        for trial in sorted(case.record.trials, key=lambda trial: (trial.block, trial.started_at_unix_s))
        if trial.voids
    )
