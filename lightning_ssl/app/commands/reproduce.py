"""`lightning-ssl reproduce NAME`: repeat a published table and judge its claims.

examples:
  lightning-ssl reproduce list                               the tables and their scales
  lightning-ssl reproduce table1 --dry-run                   list the runs and estimate the time
  lightning-ssl reproduce table1 --workers 2                 a small version on real images, two runs at a time
  lightning-ssl reproduce table1 --scale paper --dry-run     the published setting: number of runs and GPU hours
  lightning-ssl reproduce table1 --no-train --out docs       compare the runs that exist

The same command resumes. It trains what is missing (in RUNS/SWEEP-SCALE, as `lightning-ssl sweep` does), evaluates
finished runs by the papers' protocol, and writes to OUT: NAME.md (claims with verdicts, and the table), NAME.csv (every
run) and NAME.png. RUNS/SCALE/NAME.html is the page of `lightning-ssl report` for the same runs. A run that
another table or the archive has with the same configuration and seed is copied, not trained. Data that is missing is
downloaded. If that fails, a line says so, and the runs on it are left out.

A claim holds if the whole interval of the difference over matched seeds is on the claimed side of its margin. It is
contradicted if the interval is on the other side. Otherwise it is not decided at this scale. The primary claims of a
table come from the text of its paper; together they have an error rate of 5 %.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_ssl.app.commands.parser import Command, columns
from lightning_ssl.app.commands.sweep import share_cores
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import require_replaceable
from lightning_ssl.base.untrusted import printable

if TYPE_CHECKING:
    from lightning_ssl.app.reproduce.planning import Cell, Planned
    from lightning_ssl.app.reproduce.recipe import Reproduction, Work
    from lightning_ssl.app.sweep.scales import Scale

MARKER = b"lightning-ssl reproduce"  # NAME.md holds the command


def run(
    name: str,
    *,
    scale: str = "cpu",
    seeds: int | None = None,
    workers: int = 1,
    runs: str = "runs/reproduce",
    out: str | None = None,
    dry_run: bool = False,
    no_train: bool = False,
    retry: bool = False,
    force: bool = False,
    archive: str | None = None,
    images_per_second: float | None = None,
) -> int:
    """Repeat a published table and judge its claims: holds, contradicted, or not decided.

    The exit code is 0, 1 if a run failed, 130 if interrupted.

    Args:
        name: a reproduction such as table1, or `list`
        scale: cpu: small, on real images; night: longer; paper: as published
        seeds: number of seeds (default: 5, as in the papers)
        workers: runs at a time; they share the cores
        runs: folder of the runs
        out: folder of the results (default: RUNS/SCALE)
        dry_run: list the runs and estimate the time, run nothing
        no_train: train nothing: evaluate and compare the runs that exist
        retry: run failed runs again
        force: replace files of OUT that this command did not write
        archive: add each finished run, without checkpoints, to ARCHIVE/SWEEP-SCALE.jsonl.gz; its runs are not trained
            again
        images_per_second: speed of one worker for the estimate (see --dry-run)
    """
    for key, given in (("runs", runs), ("archive", archive)):
        require(given is None or Path(given).is_dir() or not os.path.lexists(given), key, given, "a folder")
    share_cores(workers)

    # Late: --help must not wait for numpy.
    from lightning_ssl.app.reproduce import planning, recipe
    from lightning_ssl.app.sweep import scales

    if name == "list":
        print(columns({each: recipe.load(each).title for each in recipe.names()}))
        for size in scales.scales().values():
            print(f"--scale {size.name}: {size.summary}")
        return 0
    reproduction, size = recipe.load(name), scales.scale_named(scale)
    target = Path(out or Path(runs) / scale) / name
    seed_words = [] if seeds is None else ["--seeds", str(seeds)]
    command = shlex.join(["lightning-ssl", "reproduce", name, "--scale", scale, *seed_words])
    if not dry_run:
        for suffix in (".md", ".csv", ".png"):
            require_replaceable(target.with_suffix(suffix), MARKER, force, witness=target.with_suffix(".md"))
    if reproduction.lab is not None:
        folder = Path(runs) / f"{name}-{scale}"
        print(reproduction.title)
        print(f"`lightning-ssl lab {reproduction.lab}` in {folder}: about {reproduction.minutes:g} min")
        if not dry_run:
            reproduce_lab(reproduction, folder, target.parent, command, seeds, train=not no_train)
        return 0
    works = reproduction.works
    require(scale in works, "scale", scale, f"a scale of {name}: {', '.join(works)}")
    job = Job(reproduction, works[scale], size, Path(runs), None if archive is None else Path(archive))
    code = 0
    if dry_run or not no_train:
        planned, copied = plan_runs(job, seeds, dry_run)
        estimate = planning.estimate(planned, size, images_per_second, copied)
        print(estimate.line(workers, "GPU" if scale == "paper" else "core"), flush=True)
        if dry_run:
            return 0
        code = train(planned, job.archive, workers, retry)
    if code != 130:
        compare(job, target, command)
    return code


LIMITS = {"seeds": (1, 1000), "workers": (1, 1000), "images_per_second": (0.001, 1e9)}
COMMAND = main = Command("reproduce", run, __doc__, LIMITS)


@dataclass(frozen=True)
class Job:
    """A reproduction at a scale, and the folders of its runs and of its archive."""

    reproduction: Reproduction
    work: Work
    scale: Scale
    runs: Path
    archive: Path | None

    def sources(self) -> list[Path]:
        """The folders and the archives of all sweeps at this scale, in RUNS and in the archive."""
        tops = [self.runs, *([self.archive] if self.archive else [])]
        return [
            found
            for top in tops
            for end in ("", ".jsonl.gz")
            for found in sorted(top.glob(f"*-{self.scale.name}{end}"))
        ]

    def sources_of(self, scale: str) -> list[Path]:
        """The runs of this reproduction at a scale: its archives, or its folders in RUNS without an archive."""
        names = [f"{name}-{scale}" for name in self.reproduction.works[scale].sweeps]
        if self.archive:
            return [file for name in names if (file := self.archive / f"{name}.jsonl.gz").is_file()]
        return [folder for name in names if (folder := self.runs / name).is_dir()]


def plan_runs(job: Job, seeds: int | None, dry_run: bool) -> tuple[list[Planned], list[Cell]]:
    """Announce the runs, and copy those that another sweep or the archive has. Returns sweeps and copied runs."""
    from lightning_ssl.app.reproduce import planning, sharing
    from lightning_ssl.app.sweep import screen
    from lightning_ssl.app.sweep.engine import preview

    planned = planning.plan_sweeps(job.work, job.scale, seeds, job.runs)
    missing = planning.missing_data(planned, fetch=not dry_run)
    if not dry_run:
        planned = planning.without(planned, missing)
    for line in (*planning.announcement(job.reproduction, job.scale, planned), *missing.values()):
        print(line)
    if not planned:
        raise UserError(f"name={job.reproduction.name}: no run is possible: {next(iter(missing.values()))}")
    if dry_run:  # before the estimate, which then stays visible: there can be hundreds of runs
        for each in planned:
            print(f"{each.plan.name}:")
            screen.print_trials(preview(each.plan, each.folder))
    copied = sharing.share(planned, job.sources(), dry_run)
    if copied:
        print(f"finished in another sweep or in the archive, so copied: {len(copied)}")
    return planned, copied


def train(planned: Sequence[Planned], archived: Path | None, workers: int, retry: bool) -> int:
    """Train the runs that are missing. Returns the exit code."""
    from lightning_ssl.app.reproduce import evaluating
    from lightning_ssl.app.sweep.engine import Engine

    code = 0
    for each in planned:
        keep = None
        if archived:
            keep = evaluating.keep_finished(archived / f"{each.plan.name}.jsonl.gz")
            if each.folder.is_dir():
                keep(each.folder)  # runs that finished when an earlier command was stopped
        code = max(code, Engine(each.plan, each.folder, workers, (), retry, ended=keep).run())
        if code == 130:
            break
    return code


def compare(job: Job, target: Path, command: str) -> None:
    """Evaluate the finished runs, judge the claims, and write the results."""
    from lightning_ssl.app.report.compose import build
    from lightning_ssl.app.reproduce import evaluating, figure, moves, writing
    from lightning_ssl.app.reproduce.results import tabulate
    from lightning_ssl.app.runs import archive
    from lightning_ssl.app.runs.run_record import Reader, files_to_archive
    from lightning_ssl.app.sweep.scales import scale_named
    from lightning_ssl.app.sweep.state import recorded
    from lightning_ssl.base.files import write_all

    scale, title = job.scale, job.reproduction.title
    folders = [job.runs / f"{name}-{scale.name}" for name in job.work.sweeps]
    sources = [folder for folder in folders if folder.is_dir()]
    reader = Reader(recorded)
    evaluating.evaluate_all(reader.runs(sources))
    if job.archive:
        kept = {folder: job.archive / f"{folder.name}.jsonl.gz" for folder in folders}
        for folder in sources:
            print(f"{kept[folder]}: {archive.add(kept[folder], files_to_archive(folder, recorded))} runs")
        sources = job.sources_of(scale.name)
    runs = reader.runs(sources)
    if not runs:
        raise UserError(f"runs={str(job.runs)!r}: no run in {', '.join(map(str, folders))}")
    table = tabulate(job.reproduction, job.work, runs)
    page = job.runs / scale.name / f"{job.reproduction.name}.html"
    report = build(sources, page, title=title, figures=False, reader=reader)
    report_command = shlex.join(["lightning-ssl", "report", *map(str, sources)])
    longer = [
        (scale_named(name), tabulate(job.reproduction, work, reader.runs(job.sources_of(name))))
        for name, work in job.reproduction.longer(scale.name).items()
    ]
    table_md = (report.page.with_suffix("") / "table.md").read_text(encoding="utf-8")
    texts = {
        ".md": writing.page(table, scale, command, report_command, table_md, moves.section(table, longer)),
        ".csv": writing.runs_csv(table),
    }
    files = {target.with_suffix(suffix): text.encode("utf-8", errors="replace") for suffix, text in texts.items()}
    write_all({**files, target.with_suffix(".png"): figure.draw(table)})
    print("\n".join(writing.summary_lines(table)))
    print(f"{target.with_suffix('.md')}, .csv, .png; {report.page}")


def reproduce_lab(
    reproduction: Reproduction, folder: Path, out: Path, command: str, seeds: int | None, train: bool
) -> None:
    """Run a laboratory, or read its result, and write its page."""
    from lightning_ssl.app.reproduce import labs

    result = labs.result_of(reproduction, folder, seeds, train)
    written = labs.write(reproduction, result, folder, out, command)
    for claim in result.claims:
        print(f"  {claim.outcome.ljust(12)}  {printable(claim.name)}")
    print(result.counts())
    print(", ".join(map(str, written)))
