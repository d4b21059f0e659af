"""Run folders: the one reader and the one writer. Importing this package imports no torch."""

from lightning_ssl.runs.folder import (
    CLOCK,
    LOWER_IS_BETTER,
    Metrics,
    Run,
    damage_of,
    find,
    label_of,
    read_checkpoint,
    read_metrics,
    version,
    write_whole,
)

__all__ = [
    "CLOCK",
    "LOWER_IS_BETTER",
    "Metrics",
    "Run",
    "damage_of",
    "find",
    "label_of",
    "read_checkpoint",
    "read_metrics",
    "version",
    "write_whole",
]
