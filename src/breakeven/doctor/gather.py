"""From what the user names to one `Evidence`: folders opened, commands parsed, logs read. Everything that can fail fails here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.resolve import resolve_model
from breakeven.doctor.answers import Encode, read_answers
from breakeven.doctor.banner import launch_of_banner
from breakeven.doctor.drafter import Drafter
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.launch import Launch, parse_launch
from breakeven.doctor.start_up import StartUp, start_up
from breakeven.doctor.training_log import training_figures
from breakeven.engines.base import Arm
from breakeven.engines.registry import ENGINES
from breakeven.errors import CheckpointError, UsageError
from breakeven.readers.files import Told, read_files
from breakeven.readers.reading import Reading, ReadResult
from breakeven.versions import Version

if TYPE_CHECKING:
    from breakeven.experiment.summary import RunSummary

__all__ = ["Inputs", "gather"]

ENGINE_NAMES = ("vllm", "sglang")
# A start-up log states its facts in its first thousands of lines.
MAX_LOG_BYTES = 8_000_000
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """As on the command line: None or empty where an input was not given."""

    draft: str | None = None
    target: str | None = None
    parent: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    launch: str | None = None
    plan: Path | None = None
    arm: str | None = None
    logs: tuple[Path, ...] = ()
    metrics: tuple[Path, ...] = ()
    run: Path | None = None
    answers: Path | None = None
    gpu_memory_gib: float | None = None
    expected_length: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """An arm of a plan: how it is launched, and how its baseline is."""

    draft: str | None = None
    target: str | None = None
    engine: str | None = None
    version: str | None = None
    launch: Launch | None = None
    baseline: Launch | None = None


def gather(inputs: Inputs, encode: Encode | None = None) -> Evidence:
    """Open, parse and read everything that was named.

    encode: the target's tokenizer, for answers that are text; it lives beside torch, so the command line brings it.

    Raises:
        UsageError: nothing was given, or a flag, command or log that makes no sense.
        CheckpointError: a folder that is missing, damaged or hostile.
        PlanError, StoreError: the plan or the run cannot be read.
    """
    if inputs.engine is not None and inputs.engine not in ENGINE_NAMES:
        raise UsageError(f"--engine {inputs.engine!a}: expected one of {', '.join(ENGINE_NAMES)}")
    if not any(getattr(inputs, name) for name in ("draft", "target", "launch", "plan", "logs", "metrics", "run", "answers")):
        raise UsageError("nothing to examine; give at least one of --draft, --launch, --plan, --log, --metrics, --run")
    if inputs.launch is not None and inputs.plan is not None:
        raise UsageError("--launch and --plan both say how the server is started; give one of them")
    run = _run(inputs.run)
    served = _from_plan(inputs.plan, inputs.arm) if inputs.plan is not None else _from_run(run, inputs.arm)
    launch = parse_launch(inputs.launch) if inputs.launch is not None else served.launch
    engine = _engine(inputs, launch, served)
    given = "given" if inputs.engine_version else "from the plan or run"
    version, source = _version(inputs.engine_version or served.version, given)
    if version is None and launch is not None and launch.version is not None:
        version, source = _version(launch.version, "from the image's tag", strict=False)
    readings, starts, training = _logs(inputs, version, launch)
    logs: tuple[Reading | StartUp, ...] = (*(readings.readings if readings is not None else ()), *starts)
    if launch is None:
        launch = launch_of_banner(logs)
    if engine is None:
        named = {log.engine for log in logs} & set(ENGINE_NAMES)
        engine = named.pop() if len(named) == 1 else None
    if version is None:
        printed = {log.version for log in logs if log.version and log.engine == engine}
        version, source = _version(printed.pop(), "from the log") if len(printed) == 1 else (None, "")
    facts = _facts(engine, inputs.logs)
    if version is None and isinstance(facts.get("version"), str):
        version, source = _version(str(facts["version"]), "from the log", strict=False)
    draft = inputs.draft or served.draft or _named_here(launch.drafter.value if launch is not None else None)
    target = inputs.target or served.target or _named_here(launch.target if launch is not None else None)
    return Evidence(
        draft=_drafter(draft),
        target=open_folder(resolve_model(target, Path.cwd())) if target is not None else None,
        parent=_drafter(inputs.parent),
        engine=engine,
        version=version,
        version_source=source,
        launch=launch,
        baseline=served.baseline,
        readings=readings,
        log_facts=facts,
        starts=starts,
        run=run,
        training=training,
        answers=read_answers(inputs.answers, encode) if inputs.answers is not None else None,
        gpu_memory_bytes=round(inputs.gpu_memory_gib * GIB) if inputs.gpu_memory_gib is not None else None,
        expected_length=inputs.expected_length,
        arm_engine=served.engine,
    )


def _drafter(name: str | None) -> Drafter | None:
    return Drafter(folder=open_folder(resolve_model(name, Path.cwd()))) if name is not None else None


def _named_here(name: object) -> str | None:
    """A model that the launch command names, if it lies on this machine: commands are often those of another."""
    if not isinstance(name, str):
        return None
    try:
        return str(resolve_model(name, Path.cwd()))
    except (CheckpointError, UsageError):
        return None


def _engine(inputs: Inputs, launch: Launch | None, served: _Served) -> str | None:
    if inputs.engine is not None and launch is not None and launch.engine != inputs.engine:
        raise UsageError(f"--engine {inputs.engine}, but the launch command starts {launch.engine}; leave --engine out")
    named = inputs.engine or (launch.engine if launch is not None else served.engine)
    return named if named in ENGINE_NAMES else None


def _version(text: str | None, source: str, *, strict: bool = True) -> tuple[Version | None, str]:
    if text is None:
        return None, ""
    try:
        return Version.parse(text), source
    except ValueError as error:
        if not strict:
            return None, ""
        raise UsageError(f"--engine-version: {error}") from error


def _from_plan(path: Path, name: str | None) -> _Served:
    from breakeven.experiment.plan import load_plan

    plan = load_plan(path)
    arms = {arm.name: arm for arm in plan.arms()}
    speculating = [arm.name for arm in arms.values() if arm.speculation is not None]
    if name is None and len(speculating) == 1:
        name = speculating[0]
    if name is None or name not in arms:
        raise UsageError(f"--arm {name or 'is missing'}: expected one of the plan's arms: {', '.join(arms)}")
    return _served(arms[name], arms.values())


def _from_run(run: RunSummary | None, name: str | None) -> _Served:
    """The arm of a run that drafts with a head, where there is one or it is named; folders that are gone are left out."""
    if run is None:
        return _Served()
    arms = {arm.name: arm for arm in run.record.arms}
    if name is not None and name not in arms:
        raise UsageError(f"--arm {name}: expected one of the run's arms: {', '.join(arms)}")
    drafting = [arm for arm in arms.values() if arm.speculation is not None and arm.speculation.drafter and not arm.forced]
    if name is None and len(drafting) != 1:
        return _Served()
    arm = arms[name] if name is not None else drafting[0]
    found = _served(arm, arms.values())
    stated = run.record.facts.get(arm.name, {}).get("version")
    version, _ = _version(str(stated), "", strict=False) if stated is not None else (None, "")
    return replace(
        found,
        draft=_named_here(found.draft),
        target=_named_here(found.target),
        version=str(version) if version is not None else found.version,
    )


def _served(arm: Arm, arms: Iterable[Arm]) -> _Served:
    """The baseline is the plain arm of the same engine."""
    baseline = next((one for one in arms if one.speculation is None and one.engine == arm.engine), None)
    drafter = arm.speculation.drafter if arm.speculation is not None else None
    return _Served(
        draft=str(drafter) if drafter is not None else None,
        target=str(arm.target) if arm.target is not None else None,
        engine=arm.engine,
        version=arm.engine_version,
        launch=_launch_of(arm),
        baseline=_launch_of(baseline) if baseline is not None and baseline.name != arm.name else None,
    )


def _launch_of(arm: Arm) -> Launch | None:
    """The arm's own command line as Breakeven would start it; None for attached arms and where the engine is not installed here."""
    if arm.url is not None or arm.engine not in ENGINE_NAMES:
        return None
    try:
        command = ENGINES[arm.engine].launch_command(arm, 1)
        return parse_launch(command.argv, command.env)
    except UsageError:
        return None


def _logs(
    inputs: Inputs, version: Version | None, launch: Launch | None
) -> tuple[ReadResult | None, tuple[StartUp, ...], dict[str, float]]:
    training: dict[str, float] = {}
    served: list[Path] = []
    for path in inputs.logs:
        figures = training_figures(_lines(path))
        training |= figures
        if not figures:
            served.append(path)
    paths: Sequence[Path | None] = [*served, *inputs.metrics]
    if not paths:
        return None, (), training
    starts = [start for path in served if (start := start_up(path, launch.engine if launch is not None else inputs.engine))]
    decoding = [path for path in paths if path is None or path.name not in {start.source for start in starts}]
    if not decoding:
        return None, tuple(starts), training
    return read_files(decoding, Told(version=version, draft_tokens=_draft_tokens(launch))), tuple(starts), training


def _draft_tokens(launch: Launch | None) -> int | None:
    """As the engine's own flag counts them: SGLang's with the root."""
    if launch is None or not launch.speculates:
        return None
    return launch.num_verified if launch.engine == "sglang" else launch.num_drafted


def _facts(engine: str | None, logs: Sequence[Path]) -> dict[str, object]:
    """What the server's start-up log states, in the adapter's words."""
    if engine is None or not logs:
        return {}
    # attached: nothing about it was asked for, so nothing is doubted
    attached = Arm(name="served", engine=engine, url="http://log")
    found: dict[str, Any] = {}
    for path in logs:
        found = {**ENGINES[engine].facts(attached, list(_lines(path)), ""), **found}
    return found


def _lines(path: Path) -> Iterator[str]:
    from breakeven.readers.sources import Source, blocks

    taken = 0
    for block in blocks(Source(name=path.name, path=path)):
        taken += len(block)
        yield from block.decode("utf-8", "replace").splitlines()
        if taken > MAX_LOG_BYTES:
            return


def _run(path: Path | None) -> RunSummary | None:
    if path is None:
        return None
    from breakeven.experiment.stored_run import read_run
    from breakeven.experiment.summary import RunSummary

    return RunSummary(read_run(path))
