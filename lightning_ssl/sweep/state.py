"""The state of a sweep: one SQLite file, written before and after every step that cannot be undone.

A trial is written to the file before its process starts. The process writes its own pid and start time, so that a later
engine can find it, and its own exit code, so that the code is not lost if the engine ends first.

`attempt` counts the starts of a trial. A process may act on its trial only while its own number is the current one. A
later engine raises the number, and a process with the old number exits.
"""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNFINISHED = ("pending", "running", "interrupted")  # the other statuses are final: finished, stopped, failed

SCHEMA_VERSION = 2
"""Raise it when a table changes. SQLite stores it in the file as `user_version`."""

SCHEMA = (
    "CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE trials (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parameters TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'pending', attempt INTEGER NOT NULL DEFAULT 0,
        pid INTEGER, process_start_time TEXT, exit_code INTEGER, pruned INTEGER NOT NULL DEFAULT 0,
        started_at REAL, seconds REAL NOT NULL DEFAULT 0, value REAL, error TEXT)""",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


@dataclass(frozen=True)
class Trial:
    """A row of the table `trials`."""

    number: int  # from 1
    id: str
    parameters: dict[str, Any]
    status: str = "pending"
    attempt: int = 0
    pid: int | None = None
    process_start_time: str | None = None  # with the pid it identifies a process; a pid alone is used again
    exit_code: int | None = None
    pruned: bool = False  # hyperband has stopped it
    started_at: float | None = None  # start of the last attempt, seconds since the epoch
    seconds: float = 0.0  # duration of all attempts that have ended
    value: float | None = None  # last value of the metric
    error: str | None = None


def trial_from_row(row: sqlite3.Row) -> Trial:
    return Trial(**{**dict(row), "parameters": json.loads(row["parameters"]), "pruned": bool(row["pruned"])})


class State:
    """The SQLite file of a sweep."""

    def __init__(self, file: Path) -> None:
        self.database = sqlite3.connect(file, timeout=60, isolation_level=None)
        self.database.row_factory = sqlite3.Row
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = FULL")
        if self.schema_version() != SCHEMA_VERSION:
            self.create_tables(file)

    def schema_version(self) -> int:
        version: int = self.database.execute("PRAGMA user_version").fetchone()[0]
        return version

    def create_tables(self, file: Path) -> None:
        """Create the tables in a new file. Refuse a file of another version."""
        self.database.execute("BEGIN IMMEDIATE")  # another process may open the new file at the same time
        if self.database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in SCHEMA:
                self.database.execute(statement)
        self.database.execute("COMMIT")
        if self.schema_version() != SCHEMA_VERSION:
            self.close()
            raise ValueError(f"{file}: written by another version of lightning-ssl; choose another --name")

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metadata(self, key: str) -> Any:
        """Read a value that belongs to the whole sweep; None if it is not set."""
        row = self.database.execute("SELECT value FROM metadata WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_metadata(self, key: str, value: Any) -> None:
        self.database.execute("INSERT OR REPLACE INTO metadata VALUES (?, ?)", (key, json.dumps(value)))

    def trials(self) -> list[Trial]:
        """Read all trials, in the order of their numbers."""
        return [trial_from_row(row) for row in self.database.execute("SELECT * FROM trials ORDER BY number")]

    def trial(self, id: str) -> Trial:
        return trial_from_row(self.database.execute("SELECT * FROM trials WHERE id = ?", (id,)).fetchone())

    def add(self, number: int, id: str, parameters: dict[str, Any]) -> Trial:
        self.database.execute(
            "INSERT INTO trials (number, id, parameters) VALUES (?, ?, ?)", (number, id, json.dumps(parameters))
        )
        return Trial(number, id, parameters)

    def set(self, id: str, **columns: Any) -> None:
        assert set(columns) <= set(Trial.__dataclass_fields__)
        names = ", ".join(f"{name} = ?" for name in columns)
        self.database.execute(f"UPDATE trials SET {names} WHERE id = ?", (*columns.values(), id))

    # -- attempts -----------------------------------------------------------------------------------------------------

    def start_attempt(self, trial: Trial) -> int:
        """Begin a new attempt and return its number. Later writes of an earlier process of this trial are ignored."""
        self.set(
            trial.id, status="running", pid=None, process_start_time=None, exit_code=None, error=None, started_at=None
        )
        self.database.execute("UPDATE trials SET attempt = attempt + 1 WHERE id = ?", (trial.id,))
        return self.trial(trial.id).attempt

    def claim(self, id: str, attempt: int, pid: int, process_start_time: str) -> bool:
        """Register the calling process as that of an attempt; False if the attempt is no longer the current one."""
        statement = """UPDATE trials SET pid = ?, process_start_time = ?, started_at = ?
            WHERE id = ? AND attempt = ? AND pid IS NULL"""
        return self.database.execute(statement, (pid, process_start_time, time.time(), id, attempt)).rowcount == 1

    def record_exit(self, id: str, attempt: int, exit_code: int) -> None:
        """Store the exit code of an attempt. A trial's process calls it last."""
        self.database.execute("UPDATE trials SET exit_code = ? WHERE id = ? AND attempt = ?", (exit_code, id, attempt))

    def revoke(self, trial: Trial) -> bool:
        """End the current attempt, so that its process can no longer act; False if a process has just claimed it."""
        statement = "UPDATE trials SET attempt = attempt + 1, pid = NULL WHERE id = ? AND attempt = ? AND pid IS ?"
        return self.database.execute(statement, (trial.id, trial.attempt, trial.pid)).rowcount == 1
