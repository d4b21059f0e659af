"""`lightning-ssl archive`: keep the small files of runs in one file.

examples:
  lightning-ssl archive runs/quickstart --out quickstart.jsonl.gz      all runs of a sweep
  lightning-ssl report quickstart.jsonl.gz                             the page of the same runs
  lightning-ssl archive theirs.jsonl.gz --out quickstart.jsonl.gz      add the runs of another archive

An archive has configuration, metrics, summary and evaluation of every run, in one line each, and no checkpoints. An
existing FILE is extended. A run that is in it is replaced only by a finished one. The same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.base.checks import UserError, require, shown
from lightning_ssl.base.files import require_replaceable


def run(sources: Sequence[str], *, out: Path) -> int:
    """Keep configuration, metrics and results of runs in one compressed file that `report` reads.

    Args:
        sources: the folder of a sweep, or another archive
        out: the archive, FILE.jsonl.gz, new or existing
    """
    from lightning_ssl.app.runs import archive
    from lightning_ssl.app.runs.run_record import files_to_archive
    from lightning_ssl.app.sweep.state import recorded

    require(out.name.endswith(archive.SUFFIX), "out", str(out), f"the name of a {archive.SUFFIX} file")
    require_replaceable(out, b"", force=True)
    if out.exists():
        archive.read(out)  # another file is refused before anything is written
    runs = [run for source in sources for run in files_to_archive(Path(source), recorded)]
    if not runs:
        raise UserError(f"folder={shown(', '.join(sources))}: no run below it")
    print(f"{out}: {archive.add(out, runs)} runs")
    return 0


COMMAND = main = Command("archive", run, __doc__)
