"""The SQLite file of a sweep: durability and its version."""

import json
import sqlite3

import pytest

from lightning_ssl.app.sweep.state import SCHEMA_VERSION, State


def test_the_state_is_written_at_once(tmp_path):
    with State(tmp_path / "sweep.db") as state:
        state.add(1, "001", {"a": [1, "ü"]})
        other = sqlite3.connect(tmp_path / "sweep.db")
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert json.loads(other.execute("SELECT parameters FROM trials").fetchone()[0]) == {"a": [1, "ü"]}
        other.close()


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("flags", [[], ["--status"], ["--dry-run"]])
def test_a_file_of_another_version_is_refused_in_one_line(run_sweep, write_sweep, tmp_path, version, flags):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    database = sqlite3.connect(folder / "sweep.db")
    database.execute("CREATE TABLE trials (number INTEGER PRIMARY KEY, birth TEXT)")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    file = write_sweep(parameters={"a": {"values": [1]}})
    result = run_sweep(file, *flags)
    message = f"{folder / 'sweep.db'}: written by another version of lightning-ssl; choose another --name"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"lightning-ssl: {message}\n")
    database = sqlite3.connect(folder / "sweep.db")
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("trials",)]  # unchanged
    database.close()


ROW = "UPDATE trials SET {} = ?"
SETTINGS = "INSERT INTO metadata VALUES ('settings', ?)"
WITHOUT_MAPPING = '{"parameters": {"a": 7}}'
CHANGES = {
    "code": (ROW.format("parameters"), '{"a": "evilmod.f"}', "parameters of trial 001-a=1 are not in the sweep file"),
    "another key": (ROW.format("parameters"), '{"data.name": "x"}', "of trial 001-a=1 are not in the sweep file"),
    "a list": (ROW.format("parameters"), "[1]", "a row of the table `trials` cannot be read (parameters)"),
    "a result": (ROW.format("value"), "x", "a row of the table `trials` cannot be read (value)"),
    **{f"settings {x}": (SETTINGS, x, "sweep.db: ") for x in ("x", "[1]", "{}", '{"parameters": 7}', WITHOUT_MAPPING)},
}


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
@pytest.mark.parametrize(("statement", "value", "line"), CHANGES.values(), ids=CHANGES)
def test_a_state_that_the_sweep_file_cannot_give_is_refused_in_one_line(
    run_sweep, write_sweep, tmp_path, statement, value, line, flags
):
    folder, file = tmp_path / "runs" / "one", write_sweep(parameters={"a": {"values": [1, 2]}})
    folder.mkdir(parents=True)
    with State(folder / "sweep.db") as state:
        state.add(1, "001-a=1", {"a": 1})
        state.execute(statement, (value,))
    result = run_sweep(file, *flags)
    assert result.returncode == 2
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
