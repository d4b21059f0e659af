"""The writer of metrics.csv. The cost of a row and of a new column does not depend on the length of the file.

    epoch,step,train/loss,lr,online/top1     the header
                                             a line of spaces, if there is more than 1 MiB of rows: room for the header
    0,9,0.69,0.01                            a row has the columns that were known when it was written
    0,9,,,0.41

A metric that was not logged before adds a column to the header. Earlier rows stay as they are: a cell that is missing
at the end of a row is empty. Up to 1 MiB of rows, the file is written again with the longer header, atomically. Beyond,
the header is overwritten in place and grows into the line of spaces, which pandas and the reader in metrics.py skip.

The file is a function of its rows. So a resumed run, which drops the rows after its checkpoint, ends with the file of
an undisturbed run. A writer that is killed leaves all rows, and at most an incomplete last line, which the next writer
removes.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from lightning_ssl.files import write_atomic
from lightning_ssl.runs.metrics import LOWER_IS_BETTER, as_float, parse_header

SMALL = 2**20  # bytes of rows that are copied for a new column
ROOM = 4096  # bytes of the header and its room; doubled when the header is longer


class MetricsWriter:
    """Appends rows to a metrics.csv. A metric that was not logged before adds a column.

    rows         how many rows the file has
    last, best   of every metric: its last value, and its best finite one: the lowest for metrics that match
                 LOWER_IS_BETTER, else the highest
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows = 0
        self.columns = ["epoch", "step"]
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.top, self.body = 0, 0  # bytes of the header with its room, and of the rows

    def open(self, rows: int) -> None:
        """Keep the first `rows` rows. Later rows were written after the checkpoint from which the run resumes."""
        self.rows, self.last, self.best = 0, {}, {}
        header, start = parse_header(self.file)

        def first() -> Iterator[bytes]:
            return islice(lines_from(self.file, start), rows if header else 0)

        widest = 2
        for line in first():
            cells = line.decode("utf-8", errors="replace").rstrip("\r\n").split(",")
            if len(cells) <= len(header):
                self._note(zip(header, cells, strict=False))
                widest = max(widest, 1 + max((k for k, cell in enumerate(cells) if cell), default=0))
            self.rows += 1
        self.columns = header[:widest] or ["epoch", "step"]

        def kept() -> Iterator[bytes]:
            return (trimmed(line, len(self.columns)) for line in first())

        self.body = sum(map(len, kept()))
        self._rewrite(kept)

    def append(self, row: dict[str, Any]) -> None:
        """Write one event."""
        if new := [name for name in row if name not in self.columns]:
            self.columns += new
            self._write_header()
        cells = {name: as_cell(value) for name, value in row.items()}
        line = encoded([cells.get(name, "") for name in self.columns])
        with self.file.open("ab") as stream:
            stream.write(line)
        self._note(cells.items())
        self.rows += 1
        self.body += len(line)
        if self.body > SMALL >= self.body - len(line):  # make room for the header, once
            self._write_header()

    def _note(self, cells: Iterable[tuple[str, str]]) -> None:
        for name, cell in cells:
            value = None if name in ("epoch", "step") or not cell else as_float(cell)
            if value is None:
                continue
            self.last[name] = value
            if math.isfinite(value):
                better = min if LOWER_IS_BETTER.search(name) else max
                self.best[name] = better(self.best.get(name, value), value)

    def _write_header(self) -> None:
        """Write the header: in place if there is room, else by a copy of the rows."""
        top = header_with_room(self.columns, self.body)
        if len(top) == self.top and self.body > SMALL:
            with self.file.open("r+b") as stream:
                os.pwrite(stream.fileno(), top, 0)
        else:
            start = self.top
            self._rewrite(lambda: lines_from(self.file, start))

    def _rewrite(self, lines: Callable[[], Iterator[bytes]]) -> None:
        """Write the file again, atomically: the header, then the given lines."""
        top = header_with_room(self.columns, self.body)

        def write(out: BinaryIO) -> None:
            out.write(top)
            out.writelines(lines())

        write_atomic(self.file, write)
        self.top = len(top)


def header_with_room(columns: list[str], body: int) -> bytes:
    """The header line and, if there are many bytes of rows, a line of spaces after it."""
    line = encoded(columns)
    if body <= SMALL:
        return line
    room = ROOM
    while room <= len(line):
        room *= 2
    return line + b" " * (room - len(line) - 1) + b"\n"


def lines_from(file: Path, start: int) -> Iterator[bytes]:
    """The complete lines of a file from a position on."""
    if not file.is_file():
        return
    with file.open("rb") as stream:
        stream.seek(start)
        for line in stream:
            if line.endswith(b"\n"):
                yield line


def trimmed(line: bytes, columns: int) -> bytes:
    """A row without the empty cells of columns that were dropped."""
    if line.count(b",") < columns:
        return line
    cells = line.rstrip(b"\r\n").split(b",")
    while len(cells) > columns and not cells[-1]:
        cells.pop()
    return b",".join(cells) + b"\n"


def encoded(cells: list[str]) -> bytes:
    """One line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def as_cell(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
