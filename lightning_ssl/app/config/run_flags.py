"""The flags that say where a run is and how it is tracked. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from lightning_ssl.base.checks import require, require_folder_name, require_line, require_seed


def run(
    seed_everything: int = 0,
    runs: str = "runs",
    name: str | None = None,
    resume: str = "auto",
    logger: Literal["none", "csv", "tensorboard", "wandb"] | None = None,
    group: str | None = None,
    tags: list[str] = [],  # noqa: B006  never changed
) -> None:
    """Where a run is stored, what it is called, how it is resumed and logged.

    seed_everything  seed of weights, batches and views
    runs             folder of run folders
    name             name of the run folder; generated if not given
    resume           auto: resume the run if it was stopped; never; or a run folder or checkpoint to resume from
    logger           log besides the run folder: csv and tensorboard write into it; wandb is the default under a sweep
                     agent
    group            name of a set of runs, such as a sweep's name
    tags             words to find the run by
    """


def check_run_flags(values: Mapping[str, Any]) -> None:
    """Refuse a seed that a generator does not accept, and names that a file system does not accept."""
    require_seed("seed_everything", values["seed_everything"])
    if values["name"] is not None:
        require_folder_name("name", values["name"])
    require_line("runs", values["runs"])
    folder = Path(values["runs"]).expanduser()
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    require(above.is_dir(), "runs", values["runs"], f"a folder: {above} is a file")
    resume, allowed = values["resume"], "auto, never, or a run folder or a checkpoint that exists"
    require(resume in ("auto", "never") or Path(resume).exists(), "resume", resume, allowed)
    if values["group"] is not None:
        require_line("group", values["group"])
    for tag in values["tags"]:
        require_line("tags", tag)
