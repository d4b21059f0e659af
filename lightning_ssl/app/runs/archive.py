"""The archive of a sweep: the small files of its runs in one compressed file of JSON lines, SWEEP.jsonl.gz.

    {"folder": "001-direct", "files": {"config.yaml": "…", "metrics.jsonl": "…", "summary.json": "…"}}

A line is a run. `run_record.Reader` reads an archive as it reads run folders: RUNS/SWEEP.jsonl.gz has the runs of
RUNS/SWEEP. Nothing is unpacked, so no name in an archive becomes a path of a file. The same runs give the same bytes.
"""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lightning_ssl.app.config.identity import identity
from lightning_ssl.app.runs.small_files import SMALL_FILES, Files, mapping_of
from lightning_ssl.base.checks import UserError, require_folder_name
from lightning_ssl.base.files import locked, write_atomic
from lightning_ssl.base.untrusted import load_json, one_line

SUFFIX = ".jsonl.gz"
MAX_BYTES = 500_000_000  # of an archive, unpacked
MAX_RUN = 20_000_000  # bytes of a run; one of 500 epochs has 2 MB
LOCK_TIMEOUT = 600.0  # seconds in which another process writes its run


def is_archive(path: Path) -> bool:
    """Whether a path is a file with the name of an archive."""
    return path.name.endswith(SUFFIX) and path.is_file()


def archives_in(sources: Iterable[Path]) -> list[Path]:
    """The archives among the sources, and those in the folders among them."""
    return [file for each in sources for file in (each, *sorted(each.glob(f"*{SUFFIX}"))) if is_archive(file)]


def folder_of(file: Path, name: str) -> Path:
    """The folder of a run before it was archived: RUNS/SWEEP/NAME for RUNS/SWEEP.jsonl.gz. It need not exist."""
    return file.resolve().with_name(file.name.removesuffix(SUFFIX)) / name


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def read(file: Path) -> dict[str, Files]:
    """The small files of each run, by the name of its folder. A line of another form is refused; none is left out."""
    if not file.is_file():
        raise UserError(f"{file}: not a regular file")
    runs: dict[str, Files] = {}
    left = MAX_BYTES
    try:
        with gzip.open(file) as stream:
            for number, line in enumerate(iter(lambda: stream.readline(MAX_RUN + 1), b""), 1):
                where, left = f"{file}: line {number}", left - len(line)
                if left < 0 or len(line) > MAX_RUN:
                    raise UserError(f"{where}: larger than {MAX_RUN:,} bytes, or {MAX_BYTES:,} in all")
                name, files = run_of(line, where)
                if name in runs:
                    raise UserError(f"{where}: the run {name!r} is there twice")
                runs[name] = files
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{file}: not an archive of runs, or damaged: {one_line(error)}") from error
    return runs


def run_of(line: bytes, where: str) -> tuple[str, Files]:
    """The name and the files of a run from its line. What a later version adds is refused: it would be lost."""
    reason = "expected a mapping with folder and files, all of them known to this version"
    try:
        match load_json(line.decode()):
            case {"folder": str(name), "files": dict(files), **rest} if not rest and files.keys() <= {*SMALL_FILES}:
                require_folder_name("folder", name)
                if all(isinstance(text, str) for text in files.values()):
                    return name, files
    except ValueError as error:
        reason = one_line(error)
    raise UserError(f"{where} is not a run: {reason}")


def is_finished(files: Files) -> bool:
    return mapping_of(files, "summary.json")[0].get("status") == "finished"


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def add(file: Path, runs: Iterable[tuple[str, Files]]) -> int:
    """Add runs to an archive. A run that is there is replaced only by a finished one with all of its files.

    A run that was copied from the archive is not added again. The file is replaced atomically, and only if its content
    changes. Several processes can add runs at the same time.

    Returns how many runs it has.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(f".{file.name}.lock"), f"{file}: another process is writing it", LOCK_TIMEOUT):
        known = read(file) if file.exists() else {}
        merged = dict(known)
        for name, files in runs:
            require_folder_name("folder", name)
            if original_of(files, file) in merged:
                continue
            place = place_for(name, files, merged)
            old = merged.get(place)
            if old is None or (is_finished(files) and (not is_finished(old) or old.keys() <= files.keys())):
                merged[place] = files
        if merged != known:
            write_atomic(file, lambda target: write(target, merged))
        return len(merged)


def place_for(name: str, files: Files, runs: Mapping[str, Files]) -> str:
    """The name of a run in an archive: its own, unless a run of another configuration has it."""
    mine, numbers, place = experiment(files), itertools.count(2), name
    while place in runs and mine and experiment(runs[place]) not in ({}, mine):
        place = f"{name}-{next(numbers)}"
    return place


def original_of(files: Files, file: Path) -> str | None:
    """The name in an archive of the run from which a run was copied (app/reproduce/sharing.py)."""
    sweep, _, name = str(mapping_of(files, "summary.json")[0].get("copied_from")).rpartition("/")
    return name if sweep == file.name.removesuffix(SUFFIX) else None


def experiment(files: Files) -> dict[str, Any]:
    """The values that tell the configuration of a run from others; none if it cannot be read."""
    config = mapping_of(files, "config.yaml")[0]
    return identity(config) if config else {}


def write(target: BinaryIO, runs: Mapping[str, Files]) -> None:
    with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as stream:
        for name in sorted(runs):
            line = json.dumps({"folder": name, "files": runs[name]}, sort_keys=True)
            stream.write(f"{line}\n".encode())
