"""`breakeven predict`: would speculation pay here, before measuring it; from kernel tables, step times or measured rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from breakeven.verdict.predicted.result import Prediction

__all__ = ["predict"]

DEFAULT_BATCHES = (1, 8, 32, 128)
DEFAULT_DRAFTS = (1, 2, 3, 5)
KERNELS, ROWS, STEPS, RUN = "From kernel tables", "From measured rows", "From step times", "From a measured run"
GIVEN = "From c"
MOST_RUNNING, MOST_DRAFTS = 65_536, 128
# options that only one way of predicting looks at, by the option that chooses the way
BELONGS_TO = {
    "system": "--target",
    "engine": "--target",
    "tp": "--target",
    "drafter": "--target",
    "context": "--target",
    "routing": "--target",
    "measured_plain": "--target",
    "plain_speed": "--from-table",
    "schedule_for": "--from-run",
    "engine_version": "--from-run",
}


def predict(
    context_of_call: typer.Context,
    target: Annotated[
        str | None, typer.Option(help="Model folder (config.json is enough) or hub id in the local cache.", rich_help_panel=KERNELS)
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="Hardware, such as h200_sxm or rtx_pro_6000_server.", rich_help_panel=KERNELS)
    ] = None,
    engine: Annotated[str, typer.Option(help="sglang or vllm.", rich_help_panel=KERNELS)] = "sglang",
    tp: Annotated[int, typer.Option(min=1, max=64, help="GPUs one replica is split over.", rich_help_panel=KERNELS)] = 1,
    drafter: Annotated[
        str | None,
        typer.Option(
            help="EAGLE-3 head folder, or sizes such as layers=2,vocab=163840 (default: the usual shape).", rich_help_panel=KERNELS
        ),
    ] = None,
    context: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Cached tokens of a request, on average.", rich_help_panel=KERNELS)
    ] = 1024,
    routing: Annotated[
        str, typer.Option(help="How tokens choose experts: between, uniform or skewed.", rich_help_panel=KERNELS)
    ] = "between",
    measured_plain: Annotated[
        list[str] | None,
        typer.Option(
            help="A plain figure of your machine that calibrates: 'B=1:63.6 tok/s' or 'B=1:15.7 ms'.", rich_help_panel=KERNELS
        ),
    ] = None,
    from_table: Annotated[
        Path | None,
        typer.Option(help="Table with measured rows: predicts rows without a speedup.", rich_help_panel=ROWS),
    ] = None,
    plain_speed: Annotated[
        float | None,
        typer.Option(min=0.0, help="Plain speed at the accept length asked for, in the table's unit.", rich_help_panel=ROWS),
    ] = None,
    step_times: Annotated[
        Path | None, typer.Option(help="YAML with step times by tokens and draft times by requests.", rich_help_panel=STEPS)
    ] = None,
    break_even: Annotated[
        str | None,
        typer.Option(help="c as it was measured, by number of drafts: 3:1.95. --batch says at which load.", rich_help_panel=GIVEN),
    ] = None,
    from_run: Annotated[
        Path | None, typer.Option(help="Run folder of breakeven bench with forced arms or a curve.", rich_help_panel=RUN)
    ] = None,
    schedule_for: Annotated[
        str | None,
        typer.Option(help="Write the schedule by batch size as vllm or sglang takes it.", rich_help_panel=RUN),
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="Release to write it for (default: the run's).", rich_help_panel=RUN)
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            help="Acceptance: shares by position (0.83,0.60,0.45, or conditional:...), 3:2.88 (accept length at k=3), 3:55% "
            "(accepted of drafted), or a JSON of breakeven eval."
        ),
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Running requests, such as 1,8,32.")] = None,
    num_draft_tokens: Annotated[str | None, typer.Option(help="Drafts a round, such as 1,3,5.")] = None,
    threshold: Annotated[float | None, typer.Option(min=0.0, max=0.5, help="Speedup of no use below it (default 0.03).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/predict.md).")] = False,
) -> None:
    """Predict whether speculation pays, each prediction with its own error bar; see docs/predict.md for its ways."""
    from rich.console import Console

    from breakeven.errors import UsageError
    from breakeven.report.prediction import render_prediction

    given = {
        "--target": target,
        "--from-table": from_table,
        "--step-times": step_times,
        "--break-even": break_even,
        "--from-run": from_run,
    }
    ways = [name for name, value in given.items() if value]
    if len(ways) != 1:
        raise UsageError(
            f"{' and '.join(ways) or 'nothing to predict from'} given; expected one of --target (with --system: kernel tables), "
            "--from-table (measured rows), --step-times, --break-even and --from-run"
        )
    _refuse_options_of_other_ways(context_of_call, ways[0])
    batches, drafts = _counts("--batch", batch, MOST_RUNNING), _counts("--num-draft-tokens", num_draft_tokens, MOST_DRAFTS)
    if from_run is not None:
        result = _from_run(from_run, accept, batches, drafts, threshold, schedule_for, engine_version)
    elif from_table is not None:
        result = _from_rows(from_table, accept, plain_speed, drafts, threshold)
    else:
        limit = 0.03 if threshold is None else threshold
        if step_times is not None:
            result = _from_steps(step_times, accept, batches, drafts, limit)
        elif break_even is not None:
            result = _from_costs(break_even, accept, batches, drafts, limit)
        else:
            if system is None:
                raise UsageError("--target needs --system as well: the hardware whose kernel tables are read")
            from breakeven.checkpoints.resolve import resolve_model
            from breakeven.verdict.predicted.kernels import KernelQuestion, parse_plain, predict_from_kernels

            if routing not in {"between", "uniform", "skewed"}:
                raise UsageError(f"--routing {routing[:40]!a}: expected between, uniform or skewed")
            named = str(target)
            curve = _acceptance(accept)
            question = KernelQuestion(
                named=named,
                target=resolve_model(named, Path.cwd()),
                drafter=drafter if not drafter or "=" in drafter else resolve_model(drafter, Path.cwd()),
                system=system,
                engine=engine,
                tensor_parallel=tp,
                context=context,
                routing=routing,  # type: ignore[arg-type]
                measured_plain=parse_plain(measured_plain or ()),
            )
            chosen = drafts or (tuple(range(1, curve.num_measured + 1)) if curve is not None else DEFAULT_DRAFTS)
            result = predict_from_kernels(question, curve, batches or DEFAULT_BATCHES, chosen, threshold=limit)
    if accept is not None and from_table is None:
        result = _with_acceptance(result, accept)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        render_prediction(result, Console())


def _refuse_options_of_other_ways(call: typer.Context, way: str) -> None:
    """What would be overlooked is refused: nobody gives a context length for nothing."""
    from breakeven.errors import UsageError

    for name, belongs_to in BELONGS_TO.items():
        source = call.get_parameter_source(name)
        if belongs_to != way and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{name.replace('_', '-')} goes with {belongs_to}; {way} makes nothing of it")
    source = call.get_parameter_source("batch")
    if way == "--from-table" and source is not None and source.name == "COMMANDLINE":
        raise UsageError("--batch does not go with --from-table: the loads are those of the table's rows")


def _from_run(
    folder: Path,
    accept: str | None,
    batches: tuple[int, ...],
    drafts: tuple[int, ...],
    threshold: float | None,
    schedule_for: str | None,
    engine_version: str | None,
) -> Prediction:
    from breakeven.errors import UsageError
    from breakeven.experiment.stored_run import read_run
    from breakeven.verdict.predicted.measured_run import predict_from_run
    from breakeven.verdict.predicted.spelled_schedule import spell_schedule

    if schedule_for is not None and schedule_for not in ("vllm", "sglang"):
        raise UsageError(f"--schedule-for {schedule_for[:40]!a}: expected vllm or sglang")
    if schedule_for is not None and accept is None:
        raise UsageError("--schedule-for needs --accept as well: the acceptance of the drafter that the schedule is for")
    if engine_version is not None and schedule_for is None:
        raise UsageError("--engine-version goes with --schedule-for: it is the release that the schedule is written for")
    record = read_run(folder)
    limit = record.threshold if threshold is None else threshold
    result = predict_from_run(record, _acceptance(accept), batches, drafts, threshold=limit)
    return result if schedule_for is None else spell_schedule(result, record, schedule_for, engine_version)


def _from_rows(
    path: Path, accept: str | None, plain_speed: float | None, drafts: tuple[int, ...], threshold: float | None
) -> Prediction:
    from breakeven.costs.table_predictions import Asked
    from breakeven.errors import UsageError
    from breakeven.printed.figures import Bounds, PrintedFigure
    from breakeven.verdict.predicted.tables import predict_from_table

    length = None
    if accept is not None:
        try:
            figure = PrintedFigure.parse(accept)
        except ValueError:
            figure = PrintedFigure(0.0)
        if figure.is_percent or not 1.0 <= figure.value <= 1000.0:
            raise UsageError(f"--accept {accept[:40]!a}: with --from-table it is one accept length, such as 2.40 (at least 1)")
        length = Bounds(figure.value, max(figure.bounds.low, 1.0), figure.bounds.high)
    return predict_from_table(
        path, Asked(accept_length=length, plain_speed=plain_speed or None, num_drafted=drafts), threshold=threshold
    )


def _from_steps(path: Path, accept: str | None, batches: tuple[int, ...], drafts: tuple[int, ...], threshold: float) -> Prediction:
    from breakeven.verdict.predicted.step_file import predict_from_steps, read_step_file

    return predict_from_steps(read_step_file(path), _acceptance(accept), batches, drafts, threshold=threshold)


def _from_costs(costs: str, accept: str | None, batches: tuple[int, ...], drafts: tuple[int, ...], threshold: float) -> Prediction:
    from breakeven.errors import UsageError
    from breakeven.verdict.predicted.given import predict_from_costs, read_costs

    read = read_costs(costs)
    if accept is None:
        raise UsageError("--break-even needs --accept as well: the acceptance that is held against it")
    if len(batches) != 1:
        raise UsageError("--break-even needs --batch with one number as well: c belongs to the load at which it was measured")
    return predict_from_costs(read, _acceptance(accept), batches[0], drafts, threshold=threshold)


def _acceptance(text: str | None):  # type: ignore[no-untyped-def]
    from breakeven.verdict.predicted.acceptance import read_acceptance

    return read_acceptance(text).curve if text else None


def _with_acceptance(result: Prediction, text: str) -> Prediction:
    """What was taken of `--accept` among the notes; what makes it doubtful where nobody overlooks it."""
    from breakeven.verdict.predicted.acceptance import read_acceptance

    read = read_acceptance(text)
    reached = max((point.num_draft_tokens for batch in result.batches for point in batch.points), default=0)
    doubt = f" {read.doubt}" if read.doubt and reached > 1 else ""
    return result.model_copy(update={"headline": f"{result.headline}{doubt}", "notes": (f"Acceptance: {read.told}", *result.notes)})


def _counts(flag: str, text: str | None, most: int) -> tuple[int, ...]:
    """Whole numbers from 1 to `most`, in order and without repeats."""
    from breakeven.errors import UsageError

    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or len(parts) > 64 or not all(part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= most for part in parts):
        raise UsageError(f"{flag} {text[:60]!a}: expected whole numbers from 1 to {most} with commas between, such as 1,8,32")
    return tuple(sorted({int(part) for part in parts}))
