"""A run's folder and database: every trial in one transaction when it ends, everything readable at any moment.

runs/NAME/run.sqlite   plan, launches, trials with raw samples, failures, provenance
runs/NAME/plan.yaml    the plan as resolved, to read; the copy in the database counts
runs/NAME/lock         held while a `breakeven bench` measures
runs/NAME/logs/        what servers wrote, one file a launch
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import orjson
import yaml

from breakeven.checkpoints.named_path import without_detours
from breakeven.errors import StoreError
from breakeven.experiment.plan import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.run_folder import DATABASE
from breakeven.experiment.run_lock import RunLock
from breakeven.experiment.samples_codec import encode_samples
from breakeven.experiment.store_schema import check_version, connect, create_tables, explained, transaction, upgrade
from breakeven.experiment.stored_run import check_same, read_plan, read_record
from breakeven.experiment.trial import Trial
from breakeven.whole import write_whole

__all__ = ["RunStore", "write_report"]

FINGERPRINT = ".fingerprint"
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
                    "trials of both cannot be compared: restore it, or measure again with breakeven bench --fresh or another --name"
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
        return read_record(self._connection, self.file)

    def _adopt_plan(self) -> None:
        stored = read_plan(self._connection, self.file)
        if stored is not None:
            check_same(self.folder, stored, self.plan)
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


def write_report(folder: Path, page: str) -> Path:
    """Write the run's report.html, whole or not at all; returns its absolute path.

    Raises:
        StoreError: it cannot be written.
    """
    report = without_detours(folder.absolute()) / "report.html"
    with explained(report):
        write_whole(report, page)
    return report


def _json(value: object) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
