"""The small files of a run folder: their names, their texts, and the content of config.yaml and summary.json.

A missing or unreadable file counts as an empty one. Each reader returns the content and a list of problems.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeAlias

from lightning_ssl.app.runs.metrics import METRICS, OLD_METRICS, converted
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.untrusted import load_json, load_yaml, one_line
from lightning_ssl.base.untrusted import read_text as read_limited

FILES = ("config.yaml", METRICS, "summary.json")
SMALL_FILES = (*FILES, "parameters.json", "evaluation.json")
READ = (*SMALL_FILES, OLD_METRICS)

Files: TypeAlias = dict[str, str]
"""The texts of the small files of a run, by their names."""


def read_files(folder: Path) -> tuple[Files, list[str]]:
    """The texts of the small files of a run, by their names. The metrics.csv of an older version is converted."""
    read = {name: read_text(folder / name) for name in READ if (folder / name).is_file()}
    files = {name: text for name, (text, _) in read.items()}
    if (old := files.pop(OLD_METRICS, None)) is not None:
        files.setdefault(METRICS, converted(old))
    return files, [problem for _, problems in read.values() for problem in problems]


def read_text(file: Path) -> tuple[str, list[str]]:
    """Read a text file. Bytes that are not UTF-8 are replaced. Metrics can have any size."""
    if not file.is_file():
        return "", []
    try:
        if file.name in (METRICS, OLD_METRICS):
            return file.read_text(encoding="utf-8", errors="replace"), []
        return read_limited(file, errors="replace"), []
    except (OSError, UserError) as error:
        return "", [f"{file.name} cannot be read: {one_line(error).removeprefix(f'{file}: ')}"]


def read_mapping(file: Path) -> tuple[dict[str, Any], list[str]]:
    """Read config.yaml or summary.json."""
    text, problems = read_text(file)
    content, more = mapping_of({file.name: text}, file.name)
    return content, [*problems, *more]


def mapping_of(files: Files, name: str) -> tuple[dict[str, Any], list[str]]:
    """The content of a YAML or JSON file among the small files of a run."""
    text = files.get(name)
    try:
        content = (load_yaml if name.endswith(".yaml") else load_json)(text) if text else {}
        if isinstance(content, dict):
            return content, []
        reason = f"expected a mapping, not {type(content).__name__}"
    except UserError as error:
        reason = one_line(error)
    return {}, [f"{name} cannot be read: {reason}"]


def as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_number(value: Any) -> float | None:
    """A number, or None for anything else: NaN, a boolean, an integer that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return None if math.isnan(value) else float(value)
    except OverflowError:
        return None
