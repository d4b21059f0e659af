"""The losses of a sweep and their seeds: which runs a round needs.

A loss is a cell of the grid besides the seed. Its seeds are those of the file, then 0, 1, 2, … without those.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_ssl.app.runs.looks import FILE, TakenLook, read_looks
from lightning_ssl.app.sweep.engine import check_settings
from lightning_ssl.app.sweep.plan import SEED, Plan, varies
from lightning_ssl.app.sweep.state import State, Trial
from lightning_ssl.app.sweep.wandb_sweeps import Parameters
from lightning_ssl.base.checks import UserError, require, require_positive, shown
from lightning_ssl.comparison import evalue
from lightning_ssl.comparison.looks import LOOKS, planned_looks

MOST_OPEN_ENDED = 20  # seeds, by default
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Rule:
    """When to look, and when to stop.

    most        seeds of the last look
    within      the race also ends if the survivors are equivalent within so many points; None: it does not
    looks       the numbers of seeds at which to look
    open_ended  look after every seed, by the e-process
    """

    most: int
    within: float | None
    looks: tuple[int, ...]
    open_ended: bool = False

    @classmethod
    def of(cls, most: int | None, within: float | None, open_ended: bool) -> Rule:
        """The rule of flags. What has no stated error rate is refused."""
        if within is not None:
            require_positive("difference", within)
        if open_ended:
            require(within is None, "difference", within, "given without --open-ended, which tests no equivalence")
            most = most or MOST_OPEN_ENDED
            require(evalue.FIRST <= most <= MOST_SEEDS, "max-seeds", most, f"from {evalue.FIRST} to {MOST_SEEDS}")
            return cls(most, None, tuple(range(evalue.FIRST, most + 1)), open_ended)
        return cls(most or LOOKS[-1], within, planned_looks(most or LOOKS[-1]))

    def require_same(self, looks: Sequence[TakenLook], folder: Path) -> None:
        """Refuse to continue looks of another rule: their error rates do not add up to a stated one."""
        another = f"the looks in {folder / FILE}; start another sweep with --name"
        taken = tuple(dict.fromkeys(look.seeds for look in looks))
        for look in looks:
            require((look.rates == "open-ended") == self.open_ended, "open-ended", self.open_ended, f"as in {another}")
            require(look.within == self.within, "difference", self.within, f"{look.within}, as in {another}")
        common = min(len(taken), len(self.looks))
        require(taken[:common] == self.looks[:common], "max-seeds", self.most, f"one that continues {another}")

    def next_look(self, looks: Sequence[TakenLook]) -> int | None:
        """The seeds of the next look; None if every data set is decided, or the last look was taken."""
        if looks and not undecided(looks):
            return None
        taken = max((look.seeds for look in looks), default=0)
        return next((seeds for seeds in self.looks if seeds > taken), None)


def undecided(looks: Iterable[TakenLook]) -> dict[str, TakenLook]:
    """The last look of each data set that is not decided."""
    last = {look.data: look for look in looks}
    return {data: look for data, look in last.items() if not look.decided}


def require_race(plan: Plan, file: str) -> None:
    """Refuse a sweep whose runs are not repetitions of losses."""
    config, metric = plan.config, plan.config.get("metric", {})
    why = None
    if plan.method != "grid":
        why = f"method is {plan.method}, and a grid is needed"
    elif SEED not in config["parameters"]:
        why = f"{SEED} is needed among its parameters"
    elif "early_terminate" in config:
        why = "early_terminate stops runs before their end; remove it"
    elif metric.get("goal") != "maximize" or "target" in metric:
        why = "`metric: {name: …, goal: maximize}` without a target is needed"
    elif plan.limit < len(plan.cells):
        why = "run_cap leaves out runs; remove it"
    elif len(experiments(plan)) < 2:
        why = "it has one loss, and nothing to compare it with"
    elif not all(type(seed) is int and seed >= 0 for seed in named_seeds(plan)):
        why = f"{SEED}={shown(named_seeds(plan))} must be whole numbers"
    if why:
        raise UserError(f"{file}: not a comparison of losses over seeds: {why}")


def experiments(plan: Plan) -> dict[str, Parameters]:
    """The cells of the grid besides the seed: what tells one apart (`Plan.experiment`) → parameters."""
    found: dict[str, Parameters] = {}
    for cell in plan.cells:
        found.setdefault(plan.experiment(cell), cell)
    return found


def named_seeds(plan: Plan) -> list[int]:
    entry = plan.config["parameters"][SEED]
    seeds: list[int] = entry["values"] if varies(entry) else [entry["value"]]
    return list(dict.fromkeys(seeds))


def seeds_in_order(plan: Plan) -> Iterator[int]:
    """The seeds of the file, then 0, 1, 2, … without those."""
    named = named_seeds(plan)
    return itertools.chain(named, (seed for seed in itertools.count() if seed not in named))


def cells_of(plan: Plan, wanted: Iterable[str], seeds: Iterable[int]) -> list[Parameters]:
    """The parameters of the runs of some experiments, seed by seed: a stopped round has every loss."""
    known, wanted = experiments(plan), list(wanted)
    return [{**known[each], SEED: seed} for seed in seeds for each in wanted]


def with_cells(plan: Plan, cells: Sequence[Parameters]) -> Plan:
    """The sweep with other cells."""
    seeds = {"values": list(dict.fromkeys(cell[SEED] for cell in cells))}
    config = {**plan.config, "parameters": {**plan.config["parameters"], SEED: seeds}}
    return replace(plan, config=config, cells=list(cells), limit=len(cells))


def after(rows: Sequence[Trial], plan: Plan, cells: Sequence[Parameters]) -> Plan:
    """The sweep with the trials so far and further cells, so that its progress counts all of them."""
    started = {plan.identity(row.parameters) for row in rows}
    new = [cell for cell in cells if plan.identity(cell) not in started]
    return with_cells(plan, [*(row.parameters for row in rows), *new])


def with_extra_trials(plan: Plan, folder: Path) -> Plan:
    """The sweep with the seeds that looks have added, so that its progress counts them."""
    rows = trials(plan, folder) if read_looks(folder) else []
    return after(rows, plan, []) if rows else plan


def trials(plan: Plan, folder: Path) -> list[Trial]:
    """The trials of a sweep's folder. A sweep file that has changed is refused."""
    if not (folder / "sweep.db").is_file():
        return []
    with State(folder / "sweep.db") as state:
        check_settings(state, plan, folder)
        return state.trials()
