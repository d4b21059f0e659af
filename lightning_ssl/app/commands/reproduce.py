"""`lightning-ssl reproduce NAME`: repeat a published table and judge its claims."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_ssl.app.commands.parser import Parser, columns, whole_number
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import require_replaceable
from lightning_ssl.base.machine import available_cores
from lightning_ssl.base.untrusted import printable

if TYPE_CHECKING:
    from lightning_ssl.app.reproduce.planning import Planned
    from lightning_ssl.app.reproduce.recipe import Reproduction, Scale, Work

PROG = "lightning-ssl reproduce"
MARKER = PROG.encode()  # NAME.md holds the command
EXAMPLES = """examples:
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

A claim holds if the whole 95 % interval of the difference over matched seeds is on the claimed side of its margin. It
does not hold if the interval is on the other side. Otherwise it is not decided at this scale."""


def parser() -> Parser:
    """The command line. It imports no torch."""
    top = Parser(
        prog=PROG,
        description="Repeat a published table and judge its claims: holds, does not hold, or not decided.",
        epilog=EXAMPLES,
    )
    top.add_argument("name", metavar="NAME", help="a reproduction such as table1, or `list`")
    top.add_argument(
        "--scale", default="cpu", help="cpu: small, on real images; night: longer; paper: as published (default: cpu)"
    )
    top.add_argument("--seeds", type=whole_number(1, 1000), help="number of seeds (default: 5, as in the papers)")
    top.add_argument(
        "--workers", type=whole_number(1, 1000), default=1, help="runs at a time; they share the cores (default: 1)"
    )
    top.add_argument(
        "--runs", default="runs/reproduce", metavar="DIR", help="folder of the runs (default: %(default)s)"
    )
    top.add_argument("--out", metavar="DIR", help="folder of the results (default: RUNS/SCALE)")
    top.add_argument("--dry-run", action="store_true", help="list the runs and estimate the time, run nothing")
    top.add_argument("--no-train", action="store_true", help="train nothing: evaluate and compare the runs that exist")
    top.add_argument("--retry", action="store_true", help="run failed runs again")
    top.add_argument("--force", action="store_true", help="replace files of OUT that this command did not write")
    top.add_argument(
        "--archive",
        metavar="DIR",
        help="add each finished run, without checkpoints, to DIR/SWEEP-SCALE.jsonl.gz; its runs are not trained again",
    )
    top.add_argument(
        "--images-per-second", type=float, metavar="N", help="speed of one worker for the estimate (see --dry-run)"
    )
    return top


def main(argv: Sequence[str]) -> int:
    """Train, evaluate and compare. The exit code is 0, 1 if a run failed, 130 if interrupted."""
    arguments = parser().parse_args(argv)
    for key in ("runs", "archive"):
        given = getattr(arguments, key)
        require(given is None or Path(given).is_dir() or not os.path.lexists(given), key, given, "a folder")
    if arguments.images_per_second is not None:
        speed = arguments.images_per_second
        require(0.001 <= speed <= 1e9, "images-per-second", speed, "between 0.001 and 1e9")
    # OpenMP reads it when torch is imported, here and in the parent process of the runs.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // arguments.workers)))

    # Late: --help must not wait for numpy.
    from lightning_ssl.app.reproduce import recipe

    if arguments.name == "list":
        print_list()
        return 0
    reproduction, scale = recipe.load(arguments.name), recipe.scale_named(arguments.scale)
    seeds = [] if arguments.seeds is None else ["--seeds", str(arguments.seeds)]
    command = shlex.join(["lightning-ssl", "reproduce", reproduction.name, "--scale", scale.name, *seeds])
    if not arguments.dry_run:
        target = out_folder(arguments) / reproduction.name
        for suffix in (".md", ".csv", ".png"):
            witness = target.with_suffix(".md")
            require_replaceable(target.with_suffix(suffix), MARKER, arguments.force, witness=witness)
    if reproduction.lab is not None:
        return reproduce_lab(reproduction, arguments, command)
    works = reproduction.works
    require(scale.name in works, "scale", scale.name, f"a scale of {reproduction.name}: {', '.join(works)}")
    work = works[scale.name]
    code = 0
    if not arguments.no_train or arguments.dry_run:
        ended = train(reproduction, work, scale, arguments)
        if ended is None or ended == 130:
            return ended or 0
        code = ended
    compare(reproduction, work, scale, arguments, command)
    return code


def out_folder(arguments: argparse.Namespace) -> Path:
    """The folder of the results."""
    return Path(arguments.out) if arguments.out else Path(arguments.runs) / arguments.scale


def print_list() -> None:
    from lightning_ssl.app.reproduce import recipe

    print(columns({name: recipe.load(name).title for name in recipe.names()}))
    for scale in recipe.scales().values():
        print(f"--scale {scale.name}: {scale.summary}")


def train(reproduction: Reproduction, work: Work, scale: Scale, arguments: argparse.Namespace) -> int | None:
    """Announce the runs and train those that are missing. Returns the exit code; None after --dry-run."""
    from lightning_ssl.app.reproduce import evaluating, planning, sharing
    from lightning_ssl.app.sweep.engine import Engine

    planned = planning.plan_sweeps(work, scale, arguments.seeds, Path(arguments.runs))
    missing = planning.missing_data(planned, fetch=not arguments.dry_run)
    if not arguments.dry_run:
        planned = planning.without(planned, missing)
    for line in (*planning.announcement(reproduction, scale, planned), *missing.values()):
        print(line)
    if not planned:
        raise UserError(f"name={reproduction.name}: no run is possible: {next(iter(missing.values()))}")
    copied = [] if arguments.dry_run else sharing.share(planned, sources(arguments, scale))
    if copied:
        print(f"{len(copied)} runs are finished in another sweep or in the archive, and are copied")
    if arguments.dry_run:  # before the estimate, which then stays visible: there can be hundreds of runs
        print_runs(planned)
    estimate = planning.estimate(planned, scale, arguments.images_per_second, copied)
    print(estimate.line(arguments.workers, "GPU" if scale.name == "paper" else "core"), flush=True)
    if arguments.dry_run:
        return None
    code = 0
    for each in planned:
        keep = None
        if arguments.archive:
            keep = evaluating.keep_finished(archive_of(arguments, each.plan.name))
            if each.folder.is_dir():
                keep(each.folder)  # runs that finished when an earlier command was stopped
        ended = Engine(each.plan, each.folder, arguments.workers, (), arguments.retry, ended=keep).run()
        if ended == 130:
            return ended
        code = max(code, ended)
    return code


def archive_of(arguments: argparse.Namespace, sweep: str) -> Path:
    return Path(arguments.archive) / f"{sweep}.jsonl.gz"


def sources(arguments: argparse.Namespace, scale: Scale) -> list[Path]:
    """The folders and the archives of all sweeps at this scale, in RUNS and in the archive."""
    tops = [arguments.runs, *([arguments.archive] if arguments.archive else [])]
    return [
        found for top in tops for end in ("", ".jsonl.gz") for found in sorted(Path(top).glob(f"*-{scale.name}{end}"))
    ]


def print_runs(planned: Sequence[Planned]) -> None:
    from lightning_ssl.app.sweep import screen
    from lightning_ssl.app.sweep.engine import preview

    for each in planned:
        print(f"{each.plan.name}:")
        screen.print_trials(preview(each.plan, each.folder))


def compare(reproduction: Reproduction, work: Work, scale: Scale, arguments: argparse.Namespace, command: str) -> None:
    """Evaluate the finished runs, judge the claims, and write the results."""
    from lightning_ssl.app.report.compose import build
    from lightning_ssl.app.reproduce import evaluating, figure, writing
    from lightning_ssl.app.reproduce.results import tabulate
    from lightning_ssl.app.runs import archive
    from lightning_ssl.app.runs.run_record import Reader, files_to_archive
    from lightning_ssl.app.sweep.state import recorded
    from lightning_ssl.base.files import write_all

    runs_folder, names = Path(arguments.runs), [f"{name}-{scale.name}" for name in work.sweeps]
    sources = [runs_folder / name for name in names if (runs_folder / name).is_dir()]
    reader = Reader(recorded)
    evaluating.evaluate_all(reader.runs(sources))
    if arguments.archive:
        kept = {name: archive_of(arguments, name) for name in names}
        for folder in sources:
            number = archive.add(kept[folder.name], files_to_archive(folder, recorded))
            print(f"{kept[folder.name]}: {number} runs")
        sources = [file for file in kept.values() if file.is_file()]
    wanted = ", ".join(str(runs_folder / name) for name in names)
    require(bool(sources), "runs", arguments.runs, f"a folder with runs to compare: {wanted}")
    runs = reader.runs(sources)
    if not runs:
        raise UserError(f"runs={arguments.runs!r}: no run in {wanted}")
    table = tabulate(reproduction, work, runs)
    heading, page = reproduction.title, runs_folder / scale.name / f"{reproduction.name}.html"
    report = build(sources, page, title=heading, figures=False, reader=reader)
    target = out_folder(arguments) / reproduction.name
    report_command = shlex.join(["lightning-ssl", "report", *map(str, sources)])
    table_md = (report.page.with_suffix("") / "table.md").read_text(encoding="utf-8")
    page_md = writing.page(table, scale, command, report_command, table_md)
    texts = {".md": page_md, ".csv": writing.runs_csv(table)}
    files = {target.with_suffix(suffix): text.encode("utf-8", errors="replace") for suffix, text in texts.items()}
    write_all({**files, target.with_suffix(".png"): figure.draw(table)})
    print("\n".join(writing.summary_lines(table)))
    print(f"{target.with_suffix('.md')}, .csv, .png; {report.page}")


def reproduce_lab(reproduction: Reproduction, arguments: argparse.Namespace, command: str) -> int:
    """Run a laboratory, or read its result, and write its page."""
    from lightning_ssl.app.reproduce import labs

    folder = Path(arguments.runs) / f"{reproduction.name}-{arguments.scale}"
    print(
        f"{reproduction.title}\n`lightning-ssl lab {reproduction.lab}` in {folder}: about {reproduction.minutes:g} min"
    )
    if arguments.dry_run:
        return 0
    result = labs.result_of(reproduction, folder, arguments.seeds, train=not arguments.no_train)
    written = labs.write(reproduction, result, folder, out_folder(arguments), command)
    for claim in result.claims:
        print(f"  {labs.verdict_of(claim).ljust(13)}  {printable(claim.name)}")
    print(", ".join(map(str, written)))
    return 0
