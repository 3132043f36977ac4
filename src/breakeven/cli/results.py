"""From what a user names (a run folder, a saved result, a table of reported figures) to the one result type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from breakeven.errors import BreakevenError, ReportedError, UsageError
from breakeven.experiment.run_folder import DATABASE, run_folder
from breakeven.inputs.text import read_text
from breakeven.verdict.result import SCHEMA_VERSION, Result

__all__ = ["judged_run", "read_result"]

MAX_PLAN_BYTES = 1_000_000
MAX_RESULT_BYTES = 200_000_000


def judged_run(folder: Path) -> Result:
    """The verdict on a run, with what `breakeven equal` found about its output where that was asked.

    Raises:
        StoreError: the run or that result cannot be read.
    """
    from breakeven.experiment.stored_run import read_run
    from breakeven.verdict.equality.check import read_equality, with_equality
    from breakeven.verdict.judge import judge

    record = read_run(folder)
    return with_equality(judge(record), record, read_equality(folder))


def read_result(source: Path) -> Result:
    """Judge a run folder or a table of reported figures (.yaml, .json, .csv, .md), or read a result that `--json` printed.

    Raises:
        UsageError: nothing there, or a JSON file that is no result of this version.
        StoreError, ReportedError: the run or the table cannot be read.
    """
    if source.is_dir() or source.name == DATABASE:
        return judged_run(run_folder(source))
    if not source.exists():
        raise UsageError(f"{source}: nothing there; expected a run folder, a result as .json, or a table as .yaml or .csv")
    if source.suffix.lower() != ".json":
        from breakeven.verdict.reported import judge_reported

        try:
            return judge_reported(source)
        except ReportedError as error:
            raise _of_a_plan(source) or error from error
    try:
        if source.stat().st_size > MAX_RESULT_BYTES:
            raise UsageError(f"{source}: larger than {MAX_RESULT_BYTES} bytes; expected a result that --json printed")
        text = source.read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror})") from error
    try:
        head = _SchemaVersion.model_validate_json(text)
        version = head.schema_version
        if version is None:
            from breakeven.verdict.reported import judge_reported

            if head.rows is not None:
                return judge_reported(source)
            raise UsageError(
                f"{source}: not a result of schema {SCHEMA_VERSION} as printed by --json, nor a table of figures: neither "
                "schema_version nor rows is there"
            )
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"{source}: result of schema {version}, newer than the {SCHEMA_VERSION} that this version reads; update breakeven"
            )
        return Result.model_validate_json(text)
    except (ValidationError, RecursionError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else "nested too deeply"
        raise UsageError(f"{source}: not a result of schema {SCHEMA_VERSION} as printed by --json: {first}") from error


def _of_a_plan(source: Path) -> UsageError | None:
    """What to name in place of a plan; None where `source` is none."""
    from breakeven.experiment.plan import parse_plan

    try:
        text = read_text(source, max_bytes=MAX_PLAN_BYTES, expected="a plan", error=UsageError)
        parse_plan(text, str(source))
    except BreakevenError:
        return None
    return UsageError(f"{source}: a plan; what is judged is its run, such as runs/NAME, once breakeven bench has measured it")


class _SchemaVersion(BaseModel):
    """The one field that every version of a result has; a table of reported figures has rows instead."""

    schema_version: int | None = None
    rows: Any = None
