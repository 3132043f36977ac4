"""The tables of run.sqlite, their version, and what SQLite's own errors mean to a user."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from breakeven.errors import StoreError

__all__ = [
    "SCHEMA_VERSION",
    "UPGRADES",
    "check_version",
    "connect",
    "create_tables",
    "explained",
    "is_outdated",
    "transaction",
    "upgrade",
]

SCHEMA_VERSION = 1
# "BKEV": tells a run from any other SQLite file.
APPLICATION_ID = 0x424B4556
# From each older version one step up, run in one transaction. A version that is missing here is too old.
UPGRADES: Mapping[int, Callable[[sqlite3.Connection], object]] = {}

TABLES = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE provenance (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE launches (
    id TEXT PRIMARY KEY, arm TEXT NOT NULL, block INTEGER NOT NULL,
    started_at_unix_s REAL NOT NULL, ready_after_s REAL, ended_at_unix_s REAL, end_reason TEXT,
    command TEXT NOT NULL DEFAULT '', facts TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    arm TEXT NOT NULL, load TEXT NOT NULL, block INTEGER NOT NULL, repeat INTEGER NOT NULL, attempt INTEGER NOT NULL,
    launch TEXT NOT NULL REFERENCES launches (id), place INTEGER NOT NULL,
    started_at_unix_s REAL NOT NULL, window_s REAL NOT NULL,
    load_point TEXT NOT NULL, health TEXT NOT NULL, counters TEXT NOT NULL, voids TEXT NOT NULL,
    num_requests INTEGER NOT NULL, requests BLOB NOT NULL, arrivals BLOB NOT NULL,
    UNIQUE (arm, load, block, repeat, attempt)
);
CREATE UNIQUE INDEX one_valid_trial ON trials (arm, load, block, repeat) WHERE voids = '[]';
CREATE TABLE failures (arm TEXT PRIMARY KEY, failed_at_unix_s REAL NOT NULL, message TEXT NOT NULL, log_tail TEXT NOT NULL);
"""


def connect(file: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a run's database.

    Written with WAL and synchronous=FULL: a finished trial survives kill -9 with either setting, but only FULL brings it through a
    power cut, and one fsync a trial costs milliseconds in minutes.

    Raises:
        StoreError: it cannot be opened or is damaged.
    """
    with explained(file):
        uri = f"{file.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10.0)
        try:
            if not read_only:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
            # the first read of the file: what is no database is noticed here
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything inside happens, or nothing does."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # a full disk can have ended the transaction already
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create_tables(connection: sqlite3.Connection) -> None:
    """Tables of an empty database, all at once: a run killed in here leaves an empty file, which the next start fills."""
    with transaction(connection):
        for statement in TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def check_version(connection: sqlite3.Connection, file: Path) -> int:
    """The schema version of a run; 0 for an empty database.

    Raises:
        StoreError: not a run, newer than this Breakeven, or too old to be upgraded.
    """
    with explained(file):
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        num_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not num_tables and not application:
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{file}: an SQLite file, but not a run of Breakeven's; expected runs/NAME or its run.sqlite")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{file}: written by a newer Breakeven (schema {version}, this one reads up to {SCHEMA_VERSION}); "
            "upgrade Breakeven, or measure into another run with --name. The file was not touched"
        )
    step = version
    while step < SCHEMA_VERSION:
        if step not in UPGRADES:
            raise StoreError(
                f"{file}: schema {version} is too old to be brought to {SCHEMA_VERSION}; "
                "read it with the Breakeven that wrote it, or measure again with --fresh. The file was not touched"
            )
        step += 1
    return version


def is_outdated(version: int) -> bool:
    """Whether a run of this version is upgraded before it is read."""
    return version < SCHEMA_VERSION


def upgrade(connection: sqlite3.Connection, file: Path, version: int) -> None:
    """Bring an older run to this version, one step a transaction."""
    with explained(file):
        for step in range(version, SCHEMA_VERSION):
            with transaction(connection):
                UPGRADES[step](connection)
                connection.execute(f"PRAGMA user_version = {step + 1}")


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """SQLite's and the file system's errors as StoreError with advice. Finished trials are safe in every one of these cases."""
    try:
        yield
    # what was stored can be damaged into anything: lists cut short, tables where numbers were
    except (sqlite3.Error, OSError, zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise StoreError(_explanation(file, error)) from error


def _explanation(file: Path, error: Exception) -> str:
    code = getattr(error, "sqlite_errorname", "") or errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE")) or code in {"ENOSPC", "EDQUOT", "EFBIG"}:
        return (
            f"{file}: the disk is full or a limit on file sizes is reached ({_free(file)} free); make room and run the same "
            "command: it goes on where it stopped, finished trials are kept"
        )
    if code.startswith("SQLITE_IOERR"):
        return f"{file}: the disk does not read or write reliably ({error}); check it, then run the same command"
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")) or code in {"EACCES", "EPERM", "EROFS", "ENOENT"}:
        return f"{file}: cannot be opened or written ({error}); expected a folder of your own on a local disk"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{file}: another program holds it ({error}); close that and try again"
    if code.startswith("SQLITE_NOTADB"):
        return (
            f"{file}: not a run: it is no SQLite database; expected the folder that breakeven bench wrote, or its run.sqlite. "
            "If it was one, its beginning is overwritten: restore it from a copy, or measure again with --fresh"
        )
    return (
        f"{file}: damaged ({type(error).__name__}: {str(error)[:120]}); restore it from a copy, save what can be read with "
        f"sqlite3 {file.name} .recover, or measure again with --fresh"
    )


def _free(file: Path) -> str:
    try:
        return f"{shutil.disk_usage(file.parent).free / 1e6:.0f} MB"
    except OSError:
        return "unknown"
