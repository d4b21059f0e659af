"""A race whose runs are started by agents of W&B: reads their run folders, and writes the sweep file of the next runs.

A run belongs to the sweep if its whole configuration is that of a cell. So the look needs no server, only the run
folders on a disk that all machines share.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from lightning_ssl.app.config.identity import identity, key_of
from lightning_ssl.app.runs import archive
from lightning_ssl.app.runs.looks import read_looks, write_looks
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.study import rounds
from lightning_ssl.app.study.deciding import MOST_FAILED, Field, RaceRun
from lightning_ssl.app.study.race import look_lines
from lightning_ssl.app.study.rounds import Rule
from lightning_ssl.app.sweep.cost import complete_configs
from lightning_ssl.app.sweep.plan import SEED, Plan
from lightning_ssl.app.sweep.state import recorded
from lightning_ssl.app.sweep.wandb_sweeps import Parameters
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import is_own, write_all
from lightning_ssl.base.untrusted import printable

MARKER = "lightning-ssl sweep"
NOT_ENDED = ("running", "interrupted")


def decide(plan: Plan, runs: Path, rule: Rule, target: Path) -> int:
    """Look at the runs below a folder as far as they allow it, and write the sweep file of the runs that are missing.

    runs   the looks are stored in RUNS/SWEEP, as those of `lightning-ssl sweep`
    """
    require_own(target)
    folder = runs / plan.name
    looks = read_looks(folder)
    rule.require_same(looks, folder)
    every = rounds.experiments(plan)
    found = runs_of(plan, runs, rule.most + MOST_FAILED * len(every))  # the seeds of failed runs are replaced
    if not found:
        raise UserError(
            f"runs={str(runs)!r}: no run of {plan.name} below it; --write-next reads run folders on a shared disk"
        )
    field = Field.of(found, plan.metric)
    for line in field.changed(looks):
        print(printable(line))
    while (number := rule.next_look(looks)) is not None:
        wanted = field.wanted(looks, every)
        seeds = field.blocks(wanted, rounds.seeds_in_order(plan), number)
        known = {(run.experiment, run.seed): run.ended for run in found}
        cells = rounds.cells_of(plan, wanted, seeds)
        missing = [cell for cell in cells if (plan.experiment(cell), cell[SEED]) not in known]
        waiting = sum(not known.get((plan.experiment(cell), cell[SEED]), True) for cell in cells)
        if waiting:
            print(f"{waiting} of {len(cells)} runs have not ended; the same command looks at them later")
            return 0
        if missing:
            print("\n".join([*look_lines(folder), written(plan, missing, number, target)]))
            return 0
        for line in field.left_out(looks):
            print(printable(line))
        looks = [*looks, *field.look(looks, seeds, rule)]
        write_looks(folder, looks)
    print("\n".join(look_lines(folder)))
    return 0


def runs_of(plan: Plan, runs: Path, most: int) -> list[RaceRun]:
    """The runs below a folder whose configuration is that of a cell with one of the first seeds."""
    seeds = [seed for seed, _ in zip(rounds.seeds_in_order(plan), range(most), strict=False)]
    every = rounds.with_cells(plan, rounds.cells_of(plan, rounds.experiments(plan), seeds))
    cells = {key_of(identity(config)): cell for config, cell in zip(complete_configs(every), every.cells, strict=True)}
    found = []
    for record in Reader(recorded).runs([runs]) if runs.is_dir() else ():
        cell = cells.get(key_of(archive.experiment({"config.yaml": record.config})))
        if cell is not None:
            found.append(RaceRun(record, plan.experiment(cell), cell[SEED], record.status not in NOT_ENDED))
    return found


def require_own(file: Path) -> None:
    """Refuse to replace a file that this command did not write."""
    own = not file.exists() or is_own(file, MARKER.encode())
    require(own, "write-next", str(file), f"a new file, or one that `{MARKER}` wrote")


def written(plan: Plan, missing: Sequence[Parameters], number: int, target: Path) -> str:
    """Write the sweep files of missing runs. Returns one line with the commands that run them.

    A sweep file has a product of values. Runs that are none get several files: NEXT.yaml, NEXT-2.yaml, …
    """
    grids = products(missing)
    files = [target, *(target.with_stem(f"{target.stem}-{k}") for k in range(2, len(grids) + 1))]
    for file in files:
        require_own(file)
    texts = {}
    for k, (file, grid) in enumerate(zip(files, grids, strict=True), 1):
        name = f"{plan.name}-{number}-seeds" + (f"-{k}" if k > 1 else "")
        entries = plan.config["parameters"]
        parameters = {
            key: {"values": values} if len(values) > 1 or "values" in entries[key] else entries[key]
            for key, values in grid.items()
        }
        content = {**plan.config, "name": name, "command": [*plan.command, *plan.extra_flags], "parameters": parameters}
        head = f"# written by {MARKER} --until decided --write-next: the runs before the look at {number} seeds\n"
        texts[file] = (head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)).encode()
    write_all(texts)
    commands = "; ".join(f"wandb sweep {shlex.quote(str(file))}" for file in files)
    return f"{len(missing)} runs are missing for the look at {number} seeds: {commands}"


def products(cells: Sequence[Parameters]) -> list[dict[str, list[object]]]:
    """Split cells into grids: the values of each parameter, whose product has these cells and no others.

    >>> products([{"p": 2, "tau": 1}, {"p": 2, "tau": 3}, {"p": 4, "tau": 1}])
    [{'p': [2], 'tau': [1, 3]}, {'p': [4], 'tau': [1]}]
    """
    values = {key: distinct(cell[key] for cell in cells) for key in cells[0]}
    if math.prod(map(len, values.values())) == len(cells):
        return [values]
    key = next(key for key, several in values.items() if len(several) > 1)
    return [grid for value in values[key] for grid in products([cell for cell in cells if cell[key] == value])]


def distinct(values: Iterable[object]) -> list[object]:
    """The values without repetitions, in their order. A value can be a list."""
    found: list[object] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
