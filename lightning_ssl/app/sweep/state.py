"""The state of a sweep: one SQLite file, written before and after every step that cannot be undone.

A trial is written to the file before its process starts. The process writes its own exit code, so that the code is not
lost if the engine ends first. `trial.is_running` tells a later engine whether the process has ended.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.untrusted import load_json

UNFINISHED = ("pending", "running", "interrupted")
STATUSES = (*UNFINISHED, "finished", "stopped", "failed")  # the last three are final

SCHEMA_VERSION = 2
"""Raise it when a table changes. SQLite stores it in the file as `user_version`."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS trials (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parameters TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'pending', attempt INTEGER NOT NULL DEFAULT 0,
        pid INTEGER, exit_code INTEGER, pruned INTEGER NOT NULL DEFAULT 0,
        started_at REAL, seconds REAL NOT NULL DEFAULT 0, value REAL, error TEXT)""",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

COUNTS = ("number", "attempt", "pid", "started_at", "seconds")  # SQLite can count on from them
TRIAL_ID = re.compile(r"\w[\w.=+-]*")  # the name of a folder in that of the sweep


@dataclass(frozen=True)
class Trial:
    """A row of the table `trials`."""

    number: int  # from 1
    id: str
    parameters: dict[str, Any]
    status: str = "pending"
    attempt: int = 0  # the number of starts
    pid: int | None = None
    exit_code: int | None = None
    pruned: bool = False  # hyperband has stopped it
    started_at: float | None = None  # start of the last attempt, seconds since the epoch
    seconds: float = 0.0  # duration of all attempts that have ended
    value: float | None = None  # last value of the metric
    error: str | None = None


COLUMNS = [*Trial.__dataclass_fields__]
TYPES = {**get_type_hints(Trial), "parameters": dict}
SELECT = f"SELECT {', '.join(COLUMNS)} FROM trials"


def recorded(folder: Path) -> dict[str, Any]:
    """What sweep.db has about the trial of a run folder: `status`, `error`, and the `settings` of the sweep.

    Nothing is written. A file that cannot be read counts as an empty one.
    """
    file = folder.parent / "sweep.db"
    found: dict[str, Any] = {}
    if not file.is_file():
        return found
    with (
        suppress(sqlite3.Error, ValueError, TypeError),
        closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as database,
    ):
        end = database.execute("SELECT status, error FROM trials WHERE id = ?", (folder.name,)).fetchone()
        found["status"], found["error"] = end or (None, None)
        settings = database.execute("SELECT value FROM metadata WHERE key = 'settings'").fetchone()
        found["settings"] = load_json(settings[0]) if settings else {}
    return found


def as_settings(file: Path, text: str) -> dict[str, Any]:
    """The settings of a sweep. Text of another shape is refused; they are a mapping with parameters."""
    try:
        value: dict[str, Any] = load_json(text)
        for entry in value["parameters"].values():
            entry.keys()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: the settings of the sweep cannot be read") from error
    return value


def as_trial(file: Path, row: sqlite3.Row) -> Trial:
    """A row of the table `trials`. A row of another shape is refused."""
    try:
        content = {**{name: row[name] for name in COLUMNS}, "parameters": load_json(row["parameters"])}
        content["pruned"] = bool(row["pruned"])
        wrong = [name for name, kind in TYPES.items() if not isinstance(content[name], kind)]
        wrong += [name for name in COUNTS if not wrong and not 0 <= (content[name] or 0) < 2**62]
        wrong += ["status"] * (content["status"] not in STATUSES)
        if wrong or not TRIAL_ID.fullmatch(content["id"]):
            raise UserError((wrong or ["id"])[0])
        return Trial(**content)
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: a row of the table `trials` cannot be read ({error})") from error


class State:
    """The SQLite file of a sweep."""

    def __init__(self, file: Path) -> None:
        if file.exists() and not file.is_file():
            raise UserError(f"{file}: not the state of a sweep (not a regular file); choose another --name")
        self.file = file
        self.refusal = "not the state of a sweep ({}); choose another --name"
        with self.one_line_errors():
            self.database = sqlite3.connect(file, timeout=60, isolation_level=None)
        self.database.row_factory = sqlite3.Row
        try:
            self.open()
        except BaseException:
            self.close()
            raise

    def open(self) -> None:
        """Check the whole file before anything is written to it, and create the tables in a new one."""
        is_new = self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not is_new:
            if self.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                raise UserError(f"{self.file}: written by another version of lightning-ssl; choose another --name")
            self.settings()
            self.trials()
        self.refusal = "{}; the same command resumes the sweep"
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = FULL")
        # In one transaction: another process may open the new file at the same time.
        for statement in ("BEGIN IMMEDIATE", *SCHEMA, "COMMIT") if is_new else ():
            self.execute(statement)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        with self.one_line_errors():
            return self.database.execute(statement, values)

    @contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Turn an error of SQLite into a UserError with the file: a full disk, or a folder that was removed."""
        try:
            yield
        except sqlite3.Error as error:
            raise UserError(f"{self.file}: {self.refusal.format(error)}") from error

    def require_file(self) -> None:
        """Refuse to go on without the file: SQLite writes to a file that was removed without an error."""
        if not self.file.exists():
            raise UserError(f"{self.file}: it was removed while the sweep was running")

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settings(self) -> dict[str, Any] | None:
        """Read the settings of the sweep; None in a new file."""
        row = self.execute("SELECT value FROM metadata WHERE key = 'settings'").fetchone()
        return None if row is None else as_settings(self.file, row[0])

    def set_settings(self, settings: dict[str, Any]) -> None:
        self.execute("INSERT OR REPLACE INTO metadata VALUES ('settings', ?)", (json.dumps(settings),))

    def trials(self) -> list[Trial]:
        """Read all trials, in the order of their numbers."""
        return [as_trial(self.file, row) for row in self.execute(f"{SELECT} ORDER BY number")]

    def trial(self, id: str) -> Trial:
        return as_trial(self.file, self.execute(f"{SELECT} WHERE id = ?", (id,)).fetchone())

    def add(self, number: int, id: str, parameters: dict[str, Any]) -> Trial:
        self.execute(
            "INSERT INTO trials (number, id, parameters) VALUES (?, ?, ?)", (number, id, json.dumps(parameters))
        )
        return Trial(number, id, parameters)

    def set(self, id: str, **columns: Any) -> None:
        assert set(columns) <= set(Trial.__dataclass_fields__)
        names = ", ".join(f"{name} = ?" for name in columns)
        self.execute(f"UPDATE trials SET {names} WHERE id = ?", (*columns.values(), id))
