"""What a trial left in its run folder: the metric's history, its last value, and why it failed."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

TAIL = 20_000  # bytes of a log in which its last line is looked for


def summary(folder: Path) -> dict[str, Any]:
    """`summary.json`, or nothing where there is none or only half of one."""
    try:
        read = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def history(folder: Path, metric: str | None) -> list[float]:
    """Every value of the metric, in the order in which they were logged."""
    try:
        text = (folder / "metrics.csv").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # it is being written
        lines.pop()
    return [value for row in csv.DictReader(lines) if (value := number(row.get(metric or ""))) is not None]


def value(folder: Path, metric: str | None, past: list[float]) -> float | None:
    """The metric's last value, as the summary has it, or else the history."""
    last = summary(folder).get("last")
    found = number(last.get(metric)) if isinstance(last, dict) else None
    return found if found is not None else past[-1] if past else None


def metrics(folder: Path) -> list[str]:
    """What was logged at all."""
    last = summary(folder).get("last")
    return sorted(last) if isinstance(last, dict) else []


def error_line(folder: Path, exit: int) -> str:
    """Why a trial failed: what its summary says, else the last line of its log."""
    said = summary(folder).get("error")
    if isinstance(said, str) and said.strip():
        return said.strip().splitlines()[-1]
    try:
        tail = (folder / "log.txt").read_bytes()[-TAIL:].decode("utf-8", errors="replace")
    except OSError:
        tail = ""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    how = f"exit code {exit}" if exit >= 0 else f"ended by signal {-exit}"
    if exit < 0:  # it said nothing of that itself
        return f"{how}; its last line: {lines[-1]}" if lines else how
    return lines[-1] if lines else how


def number(text: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(text, bool) or text in (None, ""):
        return None
    try:
        found = float(text)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None
