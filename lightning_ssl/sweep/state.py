"""What has happened in a sweep: one SQLite file, written before and after everything that cannot be undone.

A trial is drawn and written down before its process starts. The process itself writes that it began (so that an engine
that comes later can find it) and how it ended (so that an end is never lost with the engine that would have seen it).
`attempt` says whose turn it is: a process that comes too late, after another engine took the trial over, finds another
number there and leaves.
"""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPEN = ("pending", "running", "interrupted")  # the others are finished, stopped, failed


@dataclass(frozen=True)
class Trial:
    """A row of the table."""

    number: int  # from 1
    id: str
    parameters: dict[str, Any]
    status: str = "pending"
    attempt: int = 0
    pid: int | None = None
    birth: str | None = None  # of the process, for numbers of processes are used again
    exit: int | None = None
    stop: bool = False  # hyperband has given it up
    started: float | None = None  # of the last attempt
    seconds: float = 0.0  # of all attempts that have ended
    value: float | None = None  # of the metric, last
    error: str | None = None


def as_trial(row: sqlite3.Row) -> Trial:
    return Trial(**{**dict(row), "parameters": json.loads(row["parameters"]), "stop": bool(row["stop"])})


class State:
    """The SQLite file of a sweep."""

    def __init__(self, file: Path) -> None:
        self.database = sqlite3.connect(file, timeout=60, isolation_level=None)
        self.database.row_factory = sqlite3.Row
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = FULL")
        self.database.execute("CREATE TABLE IF NOT EXISTS sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self.database.execute(
            """CREATE TABLE IF NOT EXISTS trials (
                number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parameters TEXT NOT NULL,
                status TEXT NOT NULL DEFAULT 'pending', attempt INTEGER NOT NULL DEFAULT 0,
                pid INTEGER, birth TEXT, exit INTEGER, stop INTEGER NOT NULL DEFAULT 0,
                started REAL, seconds REAL NOT NULL DEFAULT 0, value REAL, error TEXT)"""
        )

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, key: str) -> Any:
        """Something known of the whole sweep, or None."""
        row = self.database.execute("SELECT value FROM sweep WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_note(self, key: str, value: Any) -> None:
        self.database.execute("INSERT OR REPLACE INTO sweep VALUES (?, ?)", (key, json.dumps(value)))

    def trials(self) -> list[Trial]:
        """All of them, in the order in which they were drawn."""
        return [as_trial(row) for row in self.database.execute("SELECT * FROM trials ORDER BY number")]

    def trial(self, id: str) -> Trial:
        return as_trial(self.database.execute("SELECT * FROM trials WHERE id = ?", (id,)).fetchone())

    def add(self, number: int, id: str, parameters: dict[str, Any]) -> Trial:
        self.database.execute(
            "INSERT INTO trials (number, id, parameters) VALUES (?, ?, ?)", (number, id, json.dumps(parameters))
        )
        return Trial(number, id, parameters)

    def set(self, id: str, **columns: Any) -> None:
        assert set(columns) <= set(Trial.__dataclass_fields__)
        names = ", ".join(f"{name} = ?" for name in columns)
        self.database.execute(f"UPDATE trials SET {names} WHERE id = ?", (*columns.values(), id))

    # -- between an engine and the processes of its trials ------------------------------------------------------------

    def hand_out(self, trial: Trial) -> int:
        """Begin an attempt: what an earlier process of this trial still has to say does not count from here on."""
        self.set(trial.id, status="running", pid=None, birth=None, exit=None, error=None, started=None)
        self.database.execute("UPDATE trials SET attempt = attempt + 1 WHERE id = ?", (trial.id,))
        return self.trial(trial.id).attempt

    def claim(self, id: str, attempt: int, pid: int, birth: str) -> bool:
        """Called by a trial's process: whether the attempt is still its own."""
        mine = "UPDATE trials SET pid = ?, birth = ?, started = ? WHERE id = ? AND attempt = ? AND pid IS NULL"
        return self.database.execute(mine, (pid, birth, time.time(), id, attempt)).rowcount == 1

    def ended(self, id: str, attempt: int, exit: int) -> None:
        """Called by a trial's process, last of all."""
        self.database.execute("UPDATE trials SET exit = ? WHERE id = ? AND attempt = ?", (exit, id, attempt))

    def take_over(self, trial: Trial) -> bool:
        """Shut out a process of an engine that is gone; False where one has claimed the trial since it was read."""
        free = "UPDATE trials SET attempt = attempt + 1, pid = NULL WHERE id = ? AND attempt = ? AND pid IS ?"
        return self.database.execute(free, (trial.id, trial.attempt, trial.pid)).rowcount == 1
