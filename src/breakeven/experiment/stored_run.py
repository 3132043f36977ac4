"""A run read back from its folder, at any moment, by anybody."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Counters
from breakeven.errors import StoreError
from breakeven.experiment.plan import Plan, plan_difference
from breakeven.experiment.record import RunRecord
from breakeven.experiment.run_folder import DATABASE, OTHER_FILES, no_run
from breakeven.experiment.samples_codec import StoredSamples
from breakeven.experiment.store_schema import check_version, connect, explained, is_outdated, upgrade
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import ClientHealth, LoadPoint, Void

__all__ = ["check_plan", "check_same", "last_command", "read_plan", "read_record", "read_run", "stored_plan"]

# of the columns arm, block, repeat, attempt, launch, place, started_at_unix_s and window_s
TRIAL_KINDS = (str, int, int, int, str, int, int | float, int | float)


def read_run(path: Path) -> RunRecord:
    """A run as it stands, from its folder or its run.sqlite; it may be under way.

    Raises:
        StoreError: not a run, damaged, newer than this Breakeven or too old.
    """
    connection, file = _open_for_reading(path)
    try:
        return read_record(connection, file)
    finally:
        connection.close()


def stored_plan(folder: Path) -> Plan | None:
    """The plan that a run folder was made from; None where there is no run yet.

    Raises:
        StoreError: damaged, newer than this Breakeven or too old.
    """
    if not (folder / DATABASE).is_file():
        return None
    connection, file = _open_for_reading(folder)
    try:
        return read_plan(connection, file)
    finally:
        connection.close()


def check_plan(folder: Path, plan: Plan) -> None:
    """Whether `plan` may go on in a run folder, or begin there.

    Raises:
        StoreError: the folder was begun with another plan, or cannot be read.
    """
    stored = stored_plan(folder)
    if stored is not None:
        check_same(folder, stored, plan)


def check_same(folder: Path, stored: Plan, plan: Plan) -> None:
    """
    Raises:
        StoreError: `plan` differs from the `stored` one in more than budgets; every key that differs is named.
    """
    difference = plan_difference(stored, plan)
    if difference:
        raise StoreError(
            f"{folder}: was begun with another plan:\n  "
            + "\n  ".join(difference)
            + "\nUndo the change, give this plan another --name, or measure again with breakeven bench --fresh "
            "(launches.max and start_timeout_s may change)"
        )


def last_command(folder: Path, arm: str) -> str | None:
    """The command line of the last launch of `arm` that became ready, as it was shown; None where there is none.

    Raises:
        StoreError: damaged, newer than this Breakeven or too old.
    """
    connection, file = _open_for_reading(folder)
    try:
        with explained(file):
            row = connection.execute(
                "SELECT command FROM launches WHERE arm = ? AND ready_after_s IS NOT NULL ORDER BY started_at_unix_s DESC LIMIT 1",
                (arm,),
            ).fetchone()
        return None if row is None else str(row[0])
    finally:
        connection.close()


def _open_for_reading(path: Path) -> tuple[sqlite3.Connection, Path]:
    file = path / DATABASE if path.is_dir() else path
    if not file.is_file() or file.suffix.lower() in OTHER_FILES:
        raise no_run(path)
    connection = connect(file, read_only=True)
    try:
        version = check_version(connection, file)
        if version == 0:
            raise StoreError(f"{file}: empty, its run was ended before it began; run breakeven bench again")
        outdated = is_outdated(version)
    except BaseException:
        connection.close()
        raise
    if outdated:
        connection.close()
        connection = connect(file)
        upgrade(connection, file, version)
    return connection, file


def read_plan(connection: sqlite3.Connection, file: Path) -> Plan | None:
    """None where the run was ended before it began. Raises StoreError as `read_run` does."""
    with explained(file):
        row = connection.execute("SELECT value FROM run WHERE key = 'plan'").fetchone()
        return None if row is None else Plan.model_validate_json(row[0])


def read_record(connection: sqlite3.Connection, file: Path) -> RunRecord:
    """Everything that the database of `file` holds so far. Raises StoreError as `read_run` does."""
    plan = read_plan(connection, file)
    if plan is None:
        raise StoreError(f"{file}: its run was ended before it began; run breakeven bench again")
    with explained(file):
        rows = connection.execute(
            "SELECT arm, block, repeat, attempt, launch, place, started_at_unix_s, window_s, load_point, health, counters, voids, "
            "num_requests, requests, arrivals FROM trials ORDER BY id"
        ).fetchall()
        finished = connection.execute("SELECT value FROM run WHERE key = 'finished'").fetchone()
        return RunRecord(
            name=plan.name,
            baseline=plan.baseline,
            threshold=plan.threshold,
            objective=plan.judged_by(),
            min_launches=plan.launches.min,
            max_launches=plan.launches.max,
            arms=plan.arms(),
            loads=plan.loads(),
            trials=[_trial(row) for row in rows],
            provenance=dict(connection.execute("SELECT key, value FROM provenance ORDER BY key")),
            interrupted=finished is None or not finished[0],
            failures=dict(connection.execute("SELECT arm, message FROM failures ORDER BY arm")),
            facts={
                arm: orjson.loads(facts)
                for arm, facts in connection.execute(
                    "SELECT arm, facts FROM launches WHERE ready_after_s IS NOT NULL ORDER BY started_at_unix_s"
                )
            },
        )


def _trial(row: Sequence[Any]) -> Trial:
    arm, block, repeat, attempt, launch, place, started_at, window_s, load, health, counters, voids, num_requests, *blobs = row
    scrapes = orjson.loads(counters)
    # SQLite keeps text in a column of numbers without a word
    if not all(map(isinstance, row, TRIAL_KINDS)) or not 0.0 < window_s < math.inf or num_requests < 0:
        raise ValueError(f"a trial that cannot have been: {row[: len(TRIAL_KINDS)]!r}")
    return Trial(
        arm=arm,
        load=LoadPoint(**orjson.loads(load)),
        block=block,
        launch=launch,
        order=place,
        repeat=repeat,
        attempt=attempt,
        started_at_unix_s=started_at,
        window_s=window_s,
        samples=StoredSamples(num_requests, *blobs),
        health=ClientHealth(**orjson.loads(health)),
        counters=None if scrapes is None else (_counters(scrapes[0]), _counters(scrapes[1])),
        voids=tuple(Void(**void) for void in orjson.loads(voids)),
    )


def _counters(fields: dict[str, Any]) -> Counters:
    acceptance = fields.pop("acceptance")
    if acceptance is not None:
        acceptance = Acceptance(**acceptance | {"accepted_per_position": tuple(acceptance["accepted_per_position"])})
    return Counters(**fields, acceptance=acceptance)
