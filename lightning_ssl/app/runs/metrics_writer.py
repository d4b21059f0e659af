"""The writer of metrics.jsonl. The cost of an event does not depend on the length of the file.

A resumed run drops the events after its checkpoint, so it ends with the file of an undisturbed run. A writer that is
killed leaves all its events, and at most an incomplete last line, which the next writer removes.
"""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

from lightning_ssl.app.runs.metrics import LOWER_IS_BETTER, PLACE, Event, as_float, event_of, line_of
from lightning_ssl.app.runs.small_files import METRICS, OLD_METRICS, read_files
from lightning_ssl.base.files import write_atomic


class MetricsWriter:
    """Appends events to the metrics.jsonl of a run folder.

    rows         how many events the file has
    last, best   of every metric: its last value, and its best finite one: the lowest for metrics that match
                 LOWER_IS_BETTER, else the highest
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / METRICS
        self.rows = 0
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}

    def open(self, rows: int) -> None:
        """Keep the first `rows` events. Later ones were written after the checkpoint from which the run resumes.

        A metrics.csv of an older version is converted.
        """
        self.rows, self.last, self.best = 0, {}, {}
        if not self.file.exists():
            write_atomic(self.file, read_files(self.folder)[0].get(METRICS, "").encode())
        kept = 0  # bytes
        with self.file.open("r+b") as stream:
            for line in islice(stream, rows):
                if not line.endswith(b"\n"):
                    break
                self.note(event_of(line.decode("utf-8", errors="replace")) or {})
                self.rows += 1
                kept += len(line)
            stream.truncate(kept)
        (self.folder / OLD_METRICS).unlink(missing_ok=True)

    def append(self, event: Event) -> None:
        """Write one event."""
        with self.file.open("ab") as stream:
            stream.write(line_of(event).encode())
        self.note(event)
        self.rows += 1

    def note(self, event: Event) -> None:
        for name, logged in event.items():
            value = None if name in PLACE else as_float(logged)
            if value is None:
                continue
            self.last[name] = value
            if math.isfinite(value):
                better = min if LOWER_IS_BETTER.search(name) else max
                self.best[name] = better(self.best.get(name, value), value)
