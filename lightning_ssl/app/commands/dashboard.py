"""`lightning-ssl dashboard`: create the W&B workspace that compares losses.

examples:
  lightning-ssl dashboard --entity me --project lightning_ssl
  lightning-ssl dashboard --entity me --project lightning_ssl --group 4kzq0n7s --parameters tau,p     one sweep
  lightning-ssl dashboard --entity me --project lightning_ssl --runs runs/table1     with the verdict of the report
  lightning-ssl dashboard --entity me --project lightning_ssl --dump -          print it, send nothing
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.tracking.dashboard import PARAMETERS, build, save
from lightning_ssl.app.tracking.private import workspace_as_dict
from lightning_ssl.base.checks import require, require_line
from lightning_ssl.base.files import require_replaceable, write_atomic

MARKER = b"lightning-ssl dashboard"  # in every file that this command writes


def run(
    *,
    entity: str,
    project: str,
    name: str = "Losses",
    group: str | None = None,
    parameters: str = ",".join(PARAMETERS),
    runs: str | None = None,
    dump: str | None = None,
    force: bool = False,
) -> int:
    """Create the W&B workspace that compares losses.

    Args:
        entity: the user or team that owns the project
        project: the project of the runs
        name: name of the workspace
        group: show only runs of this group, such as the id of a sweep
        parameters: axes of the parallel coordinates, such as tau,p
        runs: folder of the runs, or an archive: the workspace begins with the table of their report, and its verdict
        dump: write the workspace as JSON to this file and send nothing; - prints it
        force: replace any regular file at --dump
    """
    for key, value in (("entity", entity), ("project", project)):
        require(re.fullmatch(r"[\w.-]+", value) is not None, key, value, "a name of letters, digits, -, _ and .")
    for key, text in (("name", name), ("group", group), ("parameters", parameters)):
        require_line(key, "all" if text is None else text)
    if dump not in (None, "-"):
        require_replaceable(Path(str(dump)), MARKER, force, "dump")
    axes = [axis.strip() for axis in parameters.split(",") if axis.strip()]
    workspace = build(entity, project, name, group, axes, None if runs is None else table_of(runs))
    if dump is None:
        save(workspace)
        return 0
    content = {"generator": MARKER.decode(), **workspace_as_dict(workspace)}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if dump == "-":
        sys.stdout.write(text)
    else:
        write_atomic(Path(dump), text.encode())
        print(f"the workspace is in {dump}")
    return 0


def table_of(runs: str) -> str:
    """The comparison of the runs in Markdown, with the verdict and the notes below it."""
    from lightning_ssl.app.report import tables  # late: it takes long to import
    from lightning_ssl.app.report.compose import read_results
    from lightning_ssl.app.runs.run_record import Reader
    from lightning_ssl.app.sweep.state import recorded

    return tables.markdown(read_results([runs], reader=Reader(recorded)))


COMMAND = main = Command("dashboard", run, __doc__)
