"""A predicted schedule in the words of the engine and release that the run was measured on."""

from __future__ import annotations

from pathlib import Path

from breakeven.checkpoints.random_head import is_random_head
from breakeven.costs.schedule import FixedChoice, Schedule, Stretch
from breakeven.costs.schedule_formats import for_sglang, for_vllm
from breakeven.engines.base import Arm
from breakeven.errors import UsageError
from breakeven.experiment.plan import RANDOM
from breakeven.experiment.record import RunRecord
from breakeven.verdict.predicted.result import PredictedSchedule, Prediction, SpelledSchedule
from breakeven.versions import Version

__all__ = ["spell_schedule"]

CONFIG_NAME = "adaptive.json"
PLACEHOLDER = "DRAFTER_FOLDER"


def spell_schedule(result: Prediction, record: RunRecord, engine: str, version: str | None) -> Prediction:
    """`result` with its schedule as flags of `engine`. `version` None takes the run's own, where it was measured on this engine.

    Raises:
        UsageError: no schedule, or a release or layout that cannot run one; says what to run instead.
    """
    if result.schedule is None:
        raise UsageError("there is no schedule to write: no batch could be predicted")
    arm = next((arm for arm in record.arms if arm.speculation is not None), record.arms[0])
    release = _release(record, arm, engine, version)
    drafter = _drafter(record)
    schedule = _as_schedule(result.schedule)
    if engine == "vllm":
        spelled = for_vllm(
            schedule,
            release,
            max_running_requests=arm.max_running_requests,
            drafter=drafter,
            data_parallel=arm.data_parallel,
        )
    else:
        spelled = for_sglang(schedule, release, drafter=drafter, config_path=CONFIG_NAME, data_parallel=arm.data_parallel)
    shown = SpelledSchedule(
        engine=engine,
        version=None if release is None else str(release),
        flags=spelled.flags,
        file_name=None if spelled.config is None else CONFIG_NAME,
        file_content=spelled.config,
        remarks=spelled.remarks,
    )
    return result.model_copy(update={"schedule": result.schedule.model_copy(update={"spelled": shown})})


def _release(record: RunRecord, arm: Arm, engine: str, version: str | None) -> Version | None:
    text = version
    if text is None and arm.engine == engine:
        found = record.facts.get(arm.name, {}).get("version") or arm.engine_version
        text = None if found is None else str(found)
    if text is None:
        return None
    try:
        return Version.parse(text)
    except ValueError as error:
        raise UsageError(f"--engine-version: {error}") from error


def _drafter(record: RunRecord) -> str:
    """The trained drafter of the run, where one took part; a random head, or that of a probe, is a stand-in that nobody serves."""
    for arm in record.arms:
        drafter = arm.speculation.drafter if arm.speculation is not None and not arm.probe else None
        if drafter is not None and str(drafter) != RANDOM and not is_random_head(Path(drafter)):
            return str(drafter)
    return PLACEHOLDER


def _as_schedule(shown: PredictedSchedule) -> Schedule:
    stretches = tuple(
        Stretch(first=part.first, last=part.last, num_drafted=part.num_draft_tokens, why=part.why) for part in shown.by_batch
    )
    fixed = shown.fixed
    return Schedule(
        stretches=stretches,
        fixed=FixedChoice(
            num_drafted=fixed.num_draft_tokens,
            worst_loss=fixed.worst_loss,
            worst_batch=fixed.worst_batch,
            undecided=fixed.undecided,
        ),
    )
