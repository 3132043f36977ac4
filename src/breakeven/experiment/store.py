"""A run's folder and database: every trial in one transaction when it ends, everything readable at any moment.

runs/NAME/run.sqlite   plan, launches, trials with raw samples, failures, provenance
runs/NAME/plan.yaml    the plan as resolved, to read; the copy in the database counts
runs/NAME/lock         held while a `breakeven bench` measures
runs/NAME/logs/        what servers wrote, one file a launch
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
import yaml

from breakeven.acceptance import Acceptance
from breakeven.checkpoints.named_path import without_detours
from breakeven.engines.base import Counters
from breakeven.errors import StoreError
from breakeven.experiment.plan import Plan, plan_difference
from breakeven.experiment.record import RunRecord
from breakeven.experiment.run_folder import DATABASE, OTHER_FILES, no_run
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.samples_codec import StoredSamples, encode_samples
from breakeven.experiment.store_schema import check_version, connect, create_tables, explained, is_outdated, transaction, upgrade
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import ClientHealth, LoadPoint, Void
from breakeven.whole import write_whole

__all__ = ["RunStore", "check_plan", "last_command", "read_run", "stored_plan", "write_report"]

FINGERPRINT = ".fingerprint"
# of the columns arm, block, repeat, attempt, launch, place, started_at_unix_s and window_s
TRIAL_KINDS = (str, int, int, int, str, int, int | float, int | float)
INSERT_TRIAL = """
INSERT INTO trials (arm, load, block, repeat, attempt, launch, place, started_at_unix_s, window_s,
                    load_point, health, counters, voids, num_requests, requests, arrivals)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class RunStore:
    """The writing side, held by one process. Use as a context manager; every method may raise StoreError."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        """`folder` need not exist. A run that is there must have been made from the same plan, budgets aside."""
        self.folder = folder
        self.file = folder / DATABASE
        self.plan = plan
        self._closing = ExitStack()

    def __enter__(self) -> RunStore:
        with self._closing as closing:
            with explained(self.folder):
                self.logs.mkdir(parents=True, exist_ok=True)
            closing.enter_context(RunLock(self.folder))
            self._connection = connect(self.file)
            closing.callback(self._connection.close)
            version = check_version(self._connection, self.file)
            with explained(self.file):
                if version == 0:
                    create_tables(self._connection)
                else:
                    upgrade(self._connection, self.file, version)
            self._adopt_plan()
            self._close_open_launches("killed")
            self._closing = closing.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def begin(self, provenance: Mapping[str, str]) -> None:
        """Note how this start came about; arms that failed earlier get another chance.

        Raises:
            StoreError: a model folder holds something else than when the run began.
        """
        with explained(self.file):
            stored = dict(self._connection.execute("SELECT key, value FROM provenance"))
        for key, value in provenance.items():
            if key.endswith(FINGERPRINT) and stored.get(key, value) != value:
                raise StoreError(
                    f"{self.folder}: {key.removesuffix(FINGERPRINT)} has changed since this run began ({stored[key]} -> {value}); "
                    "trials of both cannot be compared: restore it, or measure again with --fresh or another --name"
                )
        with explained(self.file), transaction(self._connection):
            self._connection.executemany("INSERT OR IGNORE INTO provenance VALUES (?, ?)", provenance.items())
            self._connection.execute("DELETE FROM failures")
            self._set("finished", "")

    def open_launch(self, arm: str, block: int, command: str, *, attached: bool = False) -> str:
        """Note that a server is being started; its id, unique in the run. Attached to, it is one launch for the whole run."""
        if attached:
            launch = f"{arm}/attached"
            with explained(self.file), transaction(self._connection):
                self._connection.execute(
                    "INSERT INTO launches (id, arm, block, started_at_unix_s, command) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET ended_at_unix_s = NULL, end_reason = NULL",
                    (launch, arm, block, time.time(), command),
                )
            return launch
        with explained(self.file), transaction(self._connection):
            count = self._connection.execute("SELECT count(*) FROM launches WHERE arm = ? AND block = ?", (arm, block)).fetchone()[
                0
            ]
            launch = f"{arm}/{block + 1}" + (f".{count + 1}" if count else "")
            self._connection.execute(
                "INSERT INTO launches (id, arm, block, started_at_unix_s, command) VALUES (?, ?, ?, ?, ?)",
                (launch, arm, block, time.time(), command),
            )
        return launch

    def launch_ready(self, launch: str, ready_after_s: float, facts: Mapping[str, object]) -> None:
        """Note that the server answers, and what it says of itself."""
        with explained(self.file), transaction(self._connection):
            self._connection.execute(
                "UPDATE launches SET ready_after_s = ?, facts = ? WHERE id = ?", (ready_after_s, _json(dict(facts)), launch)
            )

    def close_launch(self, launch: str, reason: str) -> None:
        """Note that the server is gone, and why."""
        with explained(self.file), transaction(self._connection):
            self._connection.execute(
                "UPDATE launches SET ended_at_unix_s = ?, end_reason = ? WHERE id = ? AND ended_at_unix_s IS NULL",
                (time.time(), reason, launch),
            )

    def add_trial(self, trial: Trial) -> None:
        """Keep a trial, valid or void, all of it or nothing. A second valid trial in the same place is refused."""
        requests, arrivals = encode_samples(trial.samples)
        counters = None if trial.counters is None else list(trial.counters)
        with explained(self.file), transaction(self._connection):
            self._connection.execute(
                INSERT_TRIAL,
                (
                    trial.arm, trial.load.label, trial.block, trial.repeat, trial.attempt, trial.launch, trial.order,
                    trial.started_at_unix_s, trial.window_s, _json(trial.load), _json(trial.health), _json(counters),
                    _json(trial.voids), len(trial.samples), requests, arrivals,
                ),
            )  # fmt: skip

    def add_failure(self, arm: str, message: str, log_tail: Sequence[str] = ()) -> None:
        """Note that an arm cannot be served; the run goes on without it."""
        with explained(self.file), transaction(self._connection):
            self._connection.execute(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", (arm, time.time(), message, "\n".join(log_tail))
            )

    def finish(self) -> None:
        """The plan has been carried out to its end."""
        with explained(self.file), transaction(self._connection):
            self._set("finished", str(time.time()))
            self._set("finished_max_launches", str(self.plan.launches.max))

    def is_finished(self) -> bool:
        """Whether nothing is left to do: carried out to the end, under the same budget, with every arm."""
        record = self.record()
        with explained(self.file):
            budget = self._connection.execute("SELECT value FROM run WHERE key = 'finished_max_launches'").fetchone()
        return not record.interrupted and not record.failures and budget is not None and int(budget[0]) >= self.plan.launches.max

    def record(self) -> RunRecord:
        """Everything so far."""
        return _read(self._connection, self.file)

    def _adopt_plan(self) -> None:
        stored = _plan(self._connection, self.file)
        if stored is not None:
            _check_same(self.folder, stored, self.plan)
        content = self.plan.model_dump(mode="json", by_alias=True)
        with explained(self.file):
            with transaction(self._connection):
                self._set("plan", _json(content))
                if stored is None:
                    self._set("created_at_unix_s", str(time.time()))
            shown = self.plan.model_dump(mode="json", by_alias=True, exclude_none=True)
            write_whole(self.folder / "plan.yaml", yaml.safe_dump(shown, sort_keys=False, allow_unicode=True))

    def _close_open_launches(self, reason: str) -> None:
        with explained(self.file), transaction(self._connection):
            self._connection.execute(
                "UPDATE launches SET ended_at_unix_s = ?, end_reason = ? WHERE ended_at_unix_s IS NULL", (time.time(), reason)
            )

    def _set(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, value))


def read_run(path: Path) -> RunRecord:
    """A run as it stands, from its folder or its run.sqlite; it may be under way.

    Raises:
        StoreError: not a run, damaged, newer than this Breakeven or too old.
    """
    connection, file = _open_for_reading(path)
    try:
        return _read(connection, file)
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
        return _plan(connection, file)
    finally:
        connection.close()


def check_plan(folder: Path, plan: Plan) -> None:
    """Whether `plan` may go on in a run folder, or begin there.

    Raises:
        StoreError: the folder was begun with another plan, or cannot be read.
    """
    stored = stored_plan(folder)
    if stored is not None:
        _check_same(folder, stored, plan)


def _check_same(folder: Path, stored: Plan, plan: Plan) -> None:
    difference = plan_difference(stored, plan)
    if difference:
        raise StoreError(
            f"{folder}: was begun with another plan:\n  "
            + "\n  ".join(difference)
            + "\nUndo the change, give this plan another --name, or measure again with --fresh "
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


def write_report(folder: Path, page: str) -> Path:
    """Write the run's report.html, whole or not at all; returns its absolute path.

    Raises:
        StoreError: it cannot be written.
    """
    report = without_detours(folder.absolute()) / "report.html"
    with explained(report):
        write_whole(report, page)
    return report


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


def _plan(connection: sqlite3.Connection, file: Path) -> Plan | None:
    with explained(file):
        row = connection.execute("SELECT value FROM run WHERE key = 'plan'").fetchone()
        return None if row is None else Plan.model_validate_json(row[0])


def _read(connection: sqlite3.Connection, file: Path) -> RunRecord:
    plan = _plan(connection, file)
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


def _json(value: object) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
